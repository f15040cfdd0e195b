# SPDX-License-Identifier: Apache-2.0
"""Virtual time (docs/decisions/0029): CPUs run side by side, also beside a neighbour, and each time the same.
Two bare boots.

Every published ratio rests on it, so it is proved on the emulator itself, without gangd.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import emulator, image, kernels, session
from lab.paths import LAB
from lab.qemu import Clock, accelerator

pytestmark = pytest.mark.lab

KERNEL = "6.18"
CPUS = 4
BUSY = "while True: pass"


@contextlib.contextmanager
def neighbours() -> Iterator[None]:
    """Two endless loops on this machine, whose cores the emulator then has to share.

    What is built once for the lab is built before: at low priority it would take hours beside them.
    """
    image.root()
    emulator.program()
    kernels.prepare(kernels.row(KERNEL))
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to share, with the program that counts."""
    folder = tmp_path_factory.mktemp("clock")
    build = ["gcc", "-O2", "-Wall", "-Werror", "-static", "-pthread", "-o", folder / "sidebyside"]
    subprocess.run([*build, LAB / "clock/sidebyside.c"], check=True)
    return folder


def counted(folder: Path) -> str:
    """Return the output of one boot, and its kernel's log with the time of every line."""
    command = f"/share/sidebyside 1 && /share/sidebyside {CPUS}; status=$?; dmesg >/share/dmesg; exit $status"
    verdict = session.run(KERNEL, command, bare=True, smp=CPUS, share=folder, project=False)
    assert verdict.status == 0, verdict.output
    return f"{verdict.output}\n{(folder / 'dmesg').read_text()}"


@pytest.fixture(scope="module")
def beside_neighbours(program: Path) -> str:
    """A boot beside two endless loops."""
    with neighbours():
        return counted(program)


def test_emulated_cpus_run_side_by_side_whatever_the_machine_does(beside_neighbours: str) -> None:
    """Four CPUs count as far as one does alone, and meet at a barrier a hundred times a slot and more.

    CPUs that took turns would count a quarter, and cross it once a turn.
    """
    alone, _, together, crossed = (
        [int(word) for word in line.split()] for line in beside_neighbours.splitlines()[:4]
    )
    print(f"turns: alone {alone[0]:,}, together {together}; a barrier of {CPUS}: {crossed[0]:,}")
    assert len(together) == CPUS
    # Measured: within 0.2 %; the thread that ends the second takes a little of one CPU.
    assert all(abs(turns / alone[0] - 1) < 0.02 for turns in together)
    assert crossed[0] > 50_000  # measured: 132,919


def test_a_run_is_the_same_each_time(beside_neighbours: str, program: Path) -> None:
    """All counts are the same without the neighbours, and so is the microsecond of every line that the kernel
    logged: nothing got in at a time of its own."""
    (program / "dmesg").unlink()
    assert counted(program) == beside_neighbours


def test_only_one_clock_depends_on_the_machine() -> None:
    """Virtual time has one thread for all CPUs, counted instructions, and a bound between CPUs."""
    words = " ".join(accelerator(Clock.VIRTUAL, sealed=True))
    assert "thread=single" in words
    assert "lockstep=" in words
    assert "-icount" not in accelerator(Clock.REAL, sealed=False)
