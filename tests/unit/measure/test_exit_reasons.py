# SPDX-License-Identifier: Apache-2.0
"""The words for exit reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.measure.exit_reasons import ISA_SVM, ISA_VMX, reason_name


@pytest.mark.parametrize(
    ("word", "vmx", "svm"),
    [
        ("pause", 40, 0x77),
        ("hlt", 12, 0x78),
        ("external_interrupt", 1, 0x60),
        ("cpuid", 10, 0x72),
        ("io", 30, 0x7B),
        ("interrupt_window", 7, 0x64),
        ("triple_fault", 2, 0x7F),
    ],
)
def test_one_word_on_both(word: str, vmx: int, svm: int) -> None:
    """An event has the same name on Intel and AMD."""
    assert reason_name(ISA_VMX, vmx) == reason_name(ISA_SVM, svm) == word


@pytest.mark.parametrize(
    ("reason", "word"),
    [(0x00, "cr_access"), (0x1F, "cr_access"), (0x20, "dr_access"), (0x3F, "dr_access"), (0x40, "exception"),
     (0x5F, "exception"), (0x60, "external_interrupt"), (0x400, "npf"), (0x1FF, "svm_0x1ff")],
)  # fmt: skip
def test_ranges_of_svm(reason: int, word: str) -> None:
    """Below 0x60 AMD numbers registers and vectors, not events."""
    assert reason_name(ISA_SVM, reason) == word


def test_unknown_on_vmx() -> None:
    """A reason of a newer CPU still gets a stable name."""
    assert reason_name(ISA_VMX, 999) == "vmx_0x3e7"


@given(isa=st.integers(0, 3), reason=st.integers(0, 2**32 - 1))
def test_every_name_is_a_plain_label(isa: int, reason: int) -> None:
    """For any number that the kernel reports, the label has 1 to 32 lower-case letters, digits and _."""
    name = reason_name(isa, reason)
    assert name.replace("_", "").isalnum() and name == name.lower() and 0 < len(name) <= 32
