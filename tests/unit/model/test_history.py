# SPDX-License-Identifier: Apache-2.0
"""Two readings, and the mode between them."""

from __future__ import annotations

from dataclasses import replace

from fakes import counters, guest, host, planned
from gangd.model.domain import Mark, Mode
from gangd.model.history import History

WEB = guest("web", 1, mark=Mark("relaxed"))


def read(history: History, seconds: float) -> None:
    history.read({WEB.uuid: counters(WEB, seconds)}, seconds)


def test_rates_are_those_between_the_last_two_readings() -> None:
    """A single reading gives no rate; two give the change per second between them."""
    history = History()
    read(history, 10.0)
    assert history.evidence[WEB.uuid].pause_per_second is None
    read(history, 14.0)
    assert history.evidence[WEB.uuid].pause_per_second == 200.0
    assert history.evidence[WEB.uuid].time == 14.0
    history.read({}, 15.0)
    assert history.evidence == {}


def test_a_mode_counts_only_if_it_was_in_force_all_the_time() -> None:
    """Planning the same again is no change of it."""
    history, relaxed = History(), planned((WEB,), host())
    balance = planned((replace(WEB, mark=Mark("balance")),), host())
    found = []
    for moment, plan in ((1.0, relaxed), (3.0, relaxed), (5.0, relaxed), (7.0, balance), (9.0, balance)):
        read(history, moment - 0.5)
        found.append(history.evidence[WEB.uuid].mode)
        history.in_force(plan, moment)
    read(history, 10.0)
    found.append(history.evidence[WEB.uuid].mode)
    assert found == [None, None, Mode.RELAXED, Mode.RELAXED, None, Mode.BALANCE]
