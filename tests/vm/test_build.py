# SPDX-License-Identifier: Apache-2.0
"""How a kernel is compiled here, without compiling one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import build, compiling
from lab.errors import LabError
from lab.kernels import Row, rows

COMPILED = [row for row in rows().values() if row.config]


def test_an_option_that_was_not_accepted_is_named() -> None:
    """An option of the fragment that the configuration lacks or has otherwise is named, a comment is not."""
    fragment = "# CONFIG_NOT_ASKED=y\nCONFIG_A=y\n\nCONFIG_B=m\nCONFIG_C=17\n"
    assert build.refused(fragment, "CONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\n") == [
        "CONFIG_B=m",
        "CONFIG_C=17",
    ]
    assert build.refused(fragment, "CONFIG_C=17\nCONFIG_B=m\nCONFIG_A=y\n") == []


def test_a_complaint_is_the_compilers() -> None:
    """A failed build's complaint has the file and the error, and not the steps around it."""
    progress = compiling.Progress("linux")
    for line in (
        "  CC      kernel/fork.o",
        "kernel/fork.c: In function 'fork':",
        "kernel/fork.c:12:3: error: 'x' undeclared (first use in this function)",
        "  CC [M]  arch/x86/kvm/svm/svm.o",
        "make[3]: *** [scripts/Makefile.build:289: kernel/fork.o] Error 1",
    ):
        progress.line(line)
    assert progress.complaint().splitlines() == [
        "kernel/fork.c: In function 'fork':",
        "kernel/fork.c:12:3: error: 'x' undeclared (first use in this function)",
        "make[3]: *** [scripts/Makefile.build:289: kernel/fork.o] Error 1",
    ]


def test_steps_of_make_and_ninja_are_no_complaints() -> None:
    """Both tools' steps are counted, so that nothing but words is left when a build fails."""
    progress = compiling.Progress("qemu")
    for line in ("  CC [M]  a.o", "[7/1500] Compiling C object libqemu.a.p/cpu.c.o", "cpu.c:1:1: error: no"):
        progress.line(line)
    assert progress.complaint() == "cpu.c:1:1: error: no"


def test_progress_is_said_every_few_seconds(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says how many steps are done, since when, and which is under way; never more often."""
    clock = [100.0]
    monkeypatch.setattr(compiling.time, "monotonic", lambda: clock[0])
    progress = compiling.Progress("linux")
    for second, step in enumerate(("CC      a.o", "CC [M]  b.o", "LD      vmlinux")):
        clock[0] = 100.0 + 3 * second
        progress.line(f"  {step}")
        progress.tell()
    assert capfd.readouterr().err == "lab: linux: 3 steps in 6 s, now LD vmlinux\n"


def test_make_that_fails_says_what_the_compiler_said(tmp_path: Path) -> None:
    """The real thing, on a tree of one file: the message has the file, the line and the words."""
    (tmp_path / "broken.c").write_text("int f(void)\n{\n\treturn nothing;\n}\n")
    (tmp_path / "Makefile").write_text("broken.o: broken.c\n\t@echo '  CC      broken.o'\n\t@gcc -c $<\n")
    with pytest.raises(LabError, match=r"broken\.c:3:.*error:.*nothing"):
        compiling.run(tmp_path, ["make", "broken.o"])
    (tmp_path / "broken.c").write_text("int f(void)\n{\n\treturn 0;\n}\n")
    compiling.run(tmp_path, ["make", "broken.o"])
    assert (tmp_path / "broken.o").exists()


def test_another_configuration_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of a prepared row changes with the text of its configuration, and with its package."""
    monkeypatch.setattr(build, "LAB", tmp_path)
    (tmp_path / "some.config").write_text("CONFIG_A=y\n")
    first = build.mark(["some.config"], ["linux-source-1"])
    assert build.mark(["some.config"], ["linux-source-1"]) == first
    assert build.mark(["some.config"], ["linux-source-2"]) != first
    (tmp_path / "some.config").write_text("CONFIG_A=m\n")
    assert build.mark(["some.config"], ["linux-source-1"]) != first


@pytest.mark.parametrize("row", COMPILED, ids=lambda row: row.name)
def test_a_compiled_row_is_apart_and_says_why(row: Row) -> None:
    """`make test` must not compile a kernel."""
    assert row.apart and row.target


@pytest.mark.parametrize("row", [row for row in COMPILED if row.is_debug], ids=lambda row: row.name)
def test_a_debug_kernel_has_its_debugging(row: Row) -> None:
    """A debug kernel without its debugging would be none."""
    options = build.options(row.config).splitlines()
    for option in ("PROVE_LOCKING", "DEBUG_KMEMLEAK", "KASAN", "DEBUG_ATOMIC_SLEEP", "MODULE_UNLOAD"):
        assert f"CONFIG_{option}=y" in options
