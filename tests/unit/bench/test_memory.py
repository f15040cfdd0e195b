# SPDX-License-Identifier: Apache-2.0
"""A guest's counters are found in another process's memory, and followed there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.guests.counters import ADDRESS, MAX_CPUS, VERSION

pytest.importorskip("libvirt")

from bench.memory import GuestMemory
from lab.guests.domains import GuestDied

# Counts one further with every line it is sent, and says so; with an argument it has no counters.
GUEST = f"""
import mmap, struct, sys
memory = mmap.mmap(-1, 16 << 20)
for number in map(int, sys.stdin):
    if len(sys.argv) == 1:
        words = struct.pack("<8s4IQ{MAX_CPUS}Q", b"GANGLOAD", {VERSION}, 2, 1, 0, number, *[0] * {MAX_CPUS})
        memory[{ADDRESS}:{ADDRESS} + len(words)] = words
    print(number, flush=True)
"""


@pytest.fixture
def words() -> list[str]:
    return []


@pytest.fixture
def guest(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", GUEST, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def count(guest: subprocess.Popen[str], number: int) -> None:
    assert guest.stdin is not None and guest.stdout is not None
    guest.stdin.write(f"{number}\n")
    guest.stdin.flush()
    assert guest.stdout.readline() == f"{number}\n"


def test_progress_is_read_from_memory(guest: subprocess.Popen[str]) -> None:
    count(guest, 7)
    memory = GuestMemory("g", guest.pid)
    first = memory.read()
    count(guest, 1 << 40)
    second = memory.read()
    memory.close()
    assert (first[1], second[1]) == (7, 1 << 40)
    assert second[0] > first[0]


@pytest.mark.parametrize("words", [["empty"]])
def test_a_process_without_counters_is_no_guest(guest: subprocess.Popen[str]) -> None:
    count(guest, 1)
    with pytest.raises(GuestDied, match="no memory of process"):
        GuestMemory("g", guest.pid)


def test_a_guest_that_ended_is_dead(guest: subprocess.Popen[str]) -> None:
    count(guest, 1)
    memory = GuestMemory("g", guest.pid)
    guest.kill()
    guest.wait()
    with pytest.raises(GuestDied, match="cannot be read"):
        memory.read()
    memory.close()
