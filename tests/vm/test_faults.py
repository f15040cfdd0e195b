# SPDX-License-Identifier: Apache-2.0
"""Faults planted in a VM fail the run: a starved guest, a warning of the kernel, a panic, an emulator that is
killed. A judge that never convicts would be none."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab import kernels, session
from lab.errors import Cause, LostVM
from lab.kernels import Kernel
from lab.observe.machine import child
from lab.qemu import Clock, Machine
from vm.boots import run

pytestmark = pytest.mark.lab

KERNEL = "6.18"
PLANTED = ("starved", "panics")


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, ...]]:
    """The scripts of every boot that was made for the tests below."""
    return []


@pytest.fixture
def booted(boots: run.Boots, asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> run.Boot:
    """The results of a boot with a fault in each script."""
    real = run._boot_once

    def boot_once(order: run._Order) -> run.Boot:
        asked.append(tuple(order.scripts))
        return real(order)

    monkeypatch.setattr(run, "_boot_once", boot_once)
    return boots("faults", lambda share: run.boot(KERNEL, PLANTED, share, bare=True, timeout=120))


def test_a_starved_guest_fails_its_check(booted: run.Boot) -> None:
    """The failure says which vCPU wanted a CPU and got none; the next check is made and holds."""
    with pytest.raises(
        AssertionError, match=r"it was starved: within .* vCPU 1 is R on CPU 1 and had \d\.\d%"
    ):
        booted.require("starved", "check_that_fails_beside_a_starved_thread")
    booted.require("starved", "check_that_holds")


def test_a_panic_fails_at_once(booted: run.Boot, asked: list[tuple[str, ...]]) -> None:
    """There is one boot. What was made before stands; the check under which it happened has failed, with the
    console's words."""
    assert asked == [PLANTED]
    assert booted.lost is not None and booted.lost.cause is Cause.PANICKED
    booted.require("panics", "check_that_holds")
    with pytest.raises(AssertionError, match="sysrq triggered crash"):
        booted.require("panics", "check_that_panics")


def test_a_warning_of_the_kernel_fails_the_boot(booted: run.Boot) -> None:
    """A line of the kernel is enough, also in a boot that is lost later."""
    standing = replace(booted, lost=None, ended={"starved": 0})
    with pytest.raises(AssertionError, match=r"WARNING: CPU: 0 PID: 1 at planted\.c:1"):
        standing.require_quiet()


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "exited with status -9"), (signal.SIGTERM, "terminating on signal 15")],
)
def test_an_emulator_that_is_killed_is_told_from_a_panic(number: signal.Signals, said: str) -> None:
    """Nothing in the VM did that, also where QEMU takes it for an orderly end (status 0)."""

    def kill() -> None:
        while (pid := child("qemu-system-x86")) is None:
            time.sleep(0.05)
        time.sleep(2.0)  # it minds signals by now
        os.kill(pid, number)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(LostVM, match=said) as lost:
        session.run(KERNEL, "tail -f /dev/null", bare=True, project=False)
    assert lost.value.cause is Cause.EMULATOR_DIED and lost.value.cause.is_the_labs


@pytest.mark.parametrize(
    ("started", "timeout", "console", "cause"),
    [
        (None, 0.0, "", Cause.NOT_STARTED),
        (None, 600.0, "Kernel panic - not syncing: no init\n", Cause.NOT_STARTED),
        (1.0, 0.0, "Kernel panic - not syncing: slow\n", Cause.HUNG),
        (1.0, 600.0, "Kernel panic - not syncing: x\n", Cause.PANICKED),
        (1.0, 600.0, "reboot: Power down\n", Cause.WENT_DOWN),
    ],
)
def test_why_a_vm_was_lost(
    tmp_path: Path, started: float | None, timeout: float, console: str, cause: Cause
) -> None:
    """By the moment, the console, and how QEMU ended. Only before its command has a VM a second chance."""
    log = tmp_path / "console"
    log.write_text(console)
    kernel = Kernel(kernels.row(KERNEL), "", Path("vmlinuz"), None, Path("modules"), [], None)
    machine = Machine(Path("qemu"), Clock.REAL, kernel, Path("initrd"), {}, log, 2, 64, None, "", False)
    one = session._Session(machine, b"", timeout, None)
    one._started = started
    with tempfile.TemporaryFile() as complaints, subprocess.Popen(["true"]) as qemu:
        lost = one._lost(qemu, complaints, time.monotonic())
    assert lost.cause is cause and lost.cause.is_the_labs == (started is None)
