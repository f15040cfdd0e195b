# SPDX-License-Identifier: Apache-2.0
"""Records of tracepoints, as the kernel describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangd.measure.tracepoint import u32_offsets

KVM_EXIT = """name: kvm_exit
ID: 1634
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned long guest_rip;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;
\tfield:u64 info1;\toffset:32;\tsize:8;\tsigned:0;

print fmt: "vcpu %u reason %s%s%s rip 0x%lx", REC->vcpu_id, (REC->isa == 1)
"""


def describe(root: Path, text: str = KVM_EXIT) -> None:
    """Give the host this description of kvm:kvm_exit."""
    folder = root / "sys/kernel/tracing/events/kvm/kvm_exit"
    folder.mkdir(parents=True)
    (folder / "format").write_text(text)


def test_offsets_are_the_kernels(tmp_path: Path) -> None:
    describe(tmp_path)
    found = u32_offsets(tmp_path, "kvm/kvm_exit", "isa", "exit_reason")
    assert found == {"isa": 24, "exit_reason": 8}


@pytest.mark.parametrize("field", ["guest_rip", "reason", "common_type"])
def test_another_record_than_expected_is_none(tmp_path: Path, field: str) -> None:
    """A field that is missing or of another size is not guessed at."""
    describe(tmp_path)
    assert u32_offsets(tmp_path, "kvm/kvm_exit", "isa", field) is None


def test_no_tracepoint_is_none(tmp_path: Path) -> None:
    assert u32_offsets(tmp_path, "kvm/kvm_exit", "isa") is None
