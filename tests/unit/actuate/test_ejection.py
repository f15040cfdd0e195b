# SPDX-License-Identifier: Apache-2.0
"""The report of an ejection: kind, sentence, decisions, and nothing a terminal would obey."""

from __future__ import annotations

from gangd.actuate.ejection import TEXTS, decisions, ejection
from gangd.bpf import abi
from gangd.bpf.abi import GangDecisionKind

NUMBERS = {"SCX_EXIT_SYSRQ": 67, "SCX_EXIT_ERROR_STALL": 1026}


def ring(*entries: tuple[int, GangDecisionKind, int]) -> abi.GangDecisions:
    """Decisions by time, kind and gang."""
    found = abi.GangDecisions(next=len(entries))
    for number, (time, kind, gang) in enumerate(entries):
        one = found.last[number]
        one.time, one.kind, one.gang = time, kind, gang
    return found


def test_no_record_is_no_ejection() -> None:
    """While the scheduler is in, its record is empty."""
    assert ejection(abi.GangExitRecord(), ring(), NUMBERS.get) is None


def test_a_stall_is_told_with_what_led_to_it() -> None:
    """Kind by the kernel's own numbers, its sentence, the decisions and its dump."""
    record = abi.GangExitRecord(kind=1026, reason=b"runnable task stall", dump=b"gang 3: in turn\n")
    record.message = b"CPU 0/KVM[811] failed to run for 10.2s"
    found = ejection(record, ring((2_000_000, GangDecisionKind.TURN, 3)), NUMBERS.get)
    assert found is not None
    assert (found.kind, found.sentence) == ("stall", "CPU 0/KVM[811] failed to run for 10.2s")
    text = "\n".join(found.report)
    assert "runnable task stall" in text and found.sentence in text
    assert "turn opened for gang 3" in text and "gang 3: in turn" in text


def test_a_kind_that_is_not_known_is_other() -> None:
    """Kernels learn new reasons; without a message the kind's number stands in."""
    found = ejection(abi.GangExitRecord(kind=4711), ring(), NUMBERS.get)
    assert found is not None and (found.kind, found.sentence) == ("other", "exit kind 4711")


def test_decisions_are_told_in_their_order() -> None:
    """Oldest first, times relative to the last, wherever the ring began."""
    lines = decisions(ring((5_000_000, GangDecisionKind.TURN, 3), (1_000_000, GangDecisionKind.TURN, 2)))
    assert [line.split(":")[1].strip() for line in lines] == [
        "turn opened for gang 2",
        "turn opened for gang 3",
    ]
    assert lines[0].split()[0] == "-4.000" and lines[1].split()[0] == "0.000"


def test_every_kind_has_a_text() -> None:
    """A decision that the scheduler notes can be read."""
    assert set(TEXTS) == set(GangDecisionKind) - {GangDecisionKind.NONE}


def test_names_of_tasks_are_a_strangers() -> None:
    """Control characters of a task's name do not reach a terminal."""
    found = ejection(abi.GangExitRecord(kind=67, message=b"evil\x1b[2J[1]"), ring(), NUMBERS.get)
    assert found is not None and "\x1b" not in found.sentence
