# SPDX-License-Identifier: Apache-2.0
"""The lab itself: it boots, it tells the truth about how a command ended, and KVM works in it.

No test here is ever skipped: a lab that cannot boot is a failure, because every claim about kernels
rests on it. Boots are few because each takes 10 to 40 seconds.
"""

import subprocess
from pathlib import Path

import pytest

from lab import session
from lab.cpio import Archive
from lab.errors import LostVM
from lab.initramfs import script_of
from lab.kernels import rows
from lab.paths import LAB

pytestmark = pytest.mark.lab

KERNEL = "6.18"


def test_exit_status_and_output_come_back(tmp_path: Path) -> None:
    """Status 7 is 7, stderr is there, the share is writable, and the right kernel ran."""
    command = "uname -r; echo complaint >&2; echo note >/dev/stderr; cp /etc/hostname /share/name; exit 7"
    verdict = session.run(KERNEL, command, bare=True, share=tmp_path, project=False)
    assert verdict.status == 7
    release, *rest = verdict.output.splitlines()
    assert release.startswith(KERNEL)
    assert rest == ["complaint", "note"]
    assert (tmp_path / "name").read_text() == "lab\n"


def test_panic_is_a_lost_vm_and_not_a_failed_command() -> None:
    """A kernel that panics under the command gives no verdict, and the console says why."""
    with pytest.raises(LostVM, match="panicked") as lost:
        session.run(KERNEL, "echo c >/proc/sysrq-trigger; exit 0", bare=True, project=False)
    assert any("sysrq" in line for line in lost.value.console)


def test_timeout_is_a_lost_vm() -> None:
    """A VM that takes too long is ended and reported, also before it has booted."""
    with pytest.raises(LostVM, match="before its command started"):
        session.run(KERNEL, "true", bare=True, project=False, timeout=2)


def test_whole_system_has_kvm_and_libvirt() -> None:
    """A system with systemd mounts the project's image and loads kvm_amd; libvirtd answers and offers KVM."""
    command = """
        modprobe kvm_amd && test -c /dev/kvm || exit 2
        virsh --connect qemu:///system list --all || exit 3
        virsh --connect qemu:///system domcapabilities --virttype kvm >/dev/null || exit 4
        python3 -c 'import gangd' || exit 5
    """
    verdict = session.run(KERNEL, command)
    assert verdict.status == 0, verdict.output
    assert "Id" in verdict.output


def test_command_line_reports_a_lost_vm_as_status_69() -> None:
    """tests/lab/run keeps the command's failures apart from the lab's own."""
    run = LAB / "run"
    words = [run, "--kernel", KERNEL, "--bare", "--no-project", "--timeout", "2", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert "gave no verdict" in done.stderr
    assert done.stdout == ""


def test_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    """The initramfs writer agrees with cpio(1)."""
    archive = Archive()
    archive.file("bin/tool", b"#!/bin/sh\n", 0o755)
    archive.symlink("bin/sh", "tool")
    archive.directory("proc")
    subprocess.run(["cpio", "-id", "--quiet"], input=archive.finish(), cwd=tmp_path, check=True)
    assert (tmp_path / "bin" / "tool").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin" / "sh").readlink() == Path("tool")
    assert (tmp_path / "proc").is_dir()


def test_one_word_goes_to_the_shell_several_do_not() -> None:
    """`run -- 'a; b'` is a shell line, `run -- a ';' b` a program with odd arguments."""
    assert script_of(["a; b"]).splitlines()[-1] == "exec sh -c 'a; b'"
    assert script_of(["a", ";", "b"]).splitlines()[-1] == "exec a ';' b"


def test_every_exclusion_has_a_reason() -> None:
    """kernels.toml parses, and no test is left out without saying why."""
    for row in rows().values():
        assert all(reason.strip() for reason in row.skip.values())
