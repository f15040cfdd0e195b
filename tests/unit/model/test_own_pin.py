# SPDX-License-Identifier: Apache-2.0
"""gangd's own hand is told from an operator's, also while a reading is older than what gangd did."""

from __future__ import annotations

from dataclasses import replace

from gangd.model.domain import Domain
from gangd.model.own_pin import OwnPin, renewed

UUID = "11111111-2222-3333-4444-555555555555"
KEY = (UUID, "vcpu/1")
ANYWHERE, ZERO, ONE, TWO = (frozenset(cpus) for cpus in ({0, 1, 2}, {0}, {1}, {2}))


def read_at(since: float) -> dict[str, Domain]:
    return {UUID: Domain(UUID, "vm", since=since)}


def test_what_gangd_wrote_is_nobodys_wish() -> None:
    pin = OwnPin(ANYWHERE, ONE, at=5.0)
    assert pin.wish(ONE, 6.0) == ANYWHERE
    assert pin.wish(ANYWHERE, 6.0) == ANYWHERE
    assert pin.wish(TWO, 6.0) == TWO


def test_a_reading_older_than_the_pin_says_nothing() -> None:
    """It was on CPU 1, then gangd took it to CPU 0: who read it before that saw CPU 1."""
    pin = OwnPin(ANYWHERE, ZERO, at=5.0)
    assert pin.wish(ONE, 4.0) == ANYWHERE
    assert pin.wish(ONE, 6.0) == ONE


def test_a_pin_has_the_time_of_its_last_change() -> None:
    first = renewed({}, {KEY: OwnPin(ANYWHERE, ONE)}, read_at(0.0), 1.0)
    assert first[KEY].at == 1.0
    same = renewed(first, {KEY: OwnPin(ANYWHERE, ONE)}, read_at(0.0), 2.0)
    assert same[KEY].at == 1.0
    assert renewed(same, {KEY: OwnPin(ANYWHERE, ZERO)}, read_at(0.0), 3.0)[KEY].at == 3.0


def test_an_undone_pin_is_remembered_until_its_guest_was_read() -> None:
    before = {KEY: OwnPin(ANYWHERE, ONE, at=1.0)}
    undone = renewed(before, {}, read_at(1.5), 2.0)
    assert undone == {KEY: OwnPin(ANYWHERE, None, at=2.0)}
    assert undone[KEY].wish(ONE, 1.5) == ANYWHERE
    assert renewed(undone, {}, read_at(1.5), 3.0) == undone
    assert renewed(undone, {}, read_at(2.5), 3.0) == {}
    assert renewed(undone, {}, {}, 3.0) == {}


def test_when_a_guest_was_read_is_no_difference_between_guests() -> None:
    """Else each reading would be a change of all of them."""
    domain = Domain(UUID, "vm", since=1.0)
    assert domain == replace(domain, since=2.0)
