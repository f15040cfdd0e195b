# SPDX-License-Identifier: Apache-2.0
"""Which guests are looked at again, and when all are."""

from __future__ import annotations

from itertools import pairwise

from fakes import guest
from gangd.model.domain import Mark
from gangd.model.stale import StaleGuests

A, B = guest("a", 1), guest("b", 2)


def test_first_all_then_only_who_changed() -> None:
    stale = StaleGuests(60.0)
    assert stale.take({A.uuid: A, B.uuid: B}, 0.0) is None
    assert stale.take({A.uuid: A, B.uuid: B}, 1.0) == set()
    marked = guest("a", 1, mark=Mark())
    assert stale.take({A.uuid: marked, B.uuid: B}, 2.0) == {A.uuid}
    assert stale.take({A.uuid: marked, B.uuid: guest("b", 3)}, 3.0) == {B.uuid}
    assert stale.take({A.uuid: marked}, 4.0) == set()


def test_a_storm_of_events_does_not_put_the_whole_look_off() -> None:
    stale = StaleGuests(60.0)
    looks = [stale.take({A.uuid: A}, float(now)) for now in range(0, 130, 5)]
    assert [5 * turn for turn, look in enumerate(looks) if look is None] == [0, 65]


def test_once_asked_for_it_is_all() -> None:
    stale = StaleGuests(60.0)
    stale.take({A.uuid: A}, 0.0)
    stale.expire_all()
    assert stale.take({A.uuid: A}, 3.0) is None
    assert stale.take({A.uuid: A}, 4.0) == set()


def test_a_guest_that_fails_is_tried_again_ever_more_rarely() -> None:
    """The pause doubles with each failure up to the interval, and ends with the failure."""
    stale, known, tried = StaleGuests(4.0), {A.uuid: A, B.uuid: B}, []
    for now in (tenth / 10 for tenth in range(200)):
        taken = stale.take(known, now)
        assert taken is None or taken <= {B.uuid}
        if taken != set():
            tried.append(now)
        stale.failed({B.uuid}, now)
    pauses = [round(later - sooner, 1) for sooner, later in pairwise(tried)]
    assert pauses[:4] == [0.3, 0.5, 1.0, 2.0] and max(pauses) == 4.0
    stale.failed(set(), 20.0)
    stale.failed({B.uuid}, 20.1)
    assert stale.take(known, 20.3) == set()
    assert stale.take(known, 20.4) == {B.uuid}
