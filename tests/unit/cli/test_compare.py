# SPDX-License-Identifier: Apache-2.0
"""gangctl compare: the arms in rounds, what is made of the readings, and that the mark is what it was."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli.compare import ARMS, compared, interval95, shown
from gangd.cli.structs import Difference
from gangd.control import client as control
from gangd.errors import InvalidArgument
from gangd.model.affect import Affect
from gangd.model.domain import Domain, Mark
from gangd.model.mark_change import MarkChange
from unit.cli.test_gangctl import run

LIVE = Affect(live=True)


class Running(FakeService):
    """Each measurement is 10 s after the one before. breaks: what a mark as `relaxed` does."""

    breaks: BaseException | None = None

    async def measured(self) -> Any:
        await self.refresh()
        return self.snapshot()

    async def mark(self, ref: str, change: MarkChange) -> Domain:
        self._break(change.policy)
        self._called("mark", ref, change.policy, change.weight)
        return self._marked(self.resolve(ref), Mark(change.policy, change.weight), change.affect)

    async def change(self, ref: str, change: MarkChange) -> Domain:
        self._break(change.policy)
        return await super().change(ref, change)

    def _break(self, policy: str | None) -> None:
        if policy != "relaxed" or self.breaks is None:
            return
        broken, self.breaks = self.breaks, None
        if isinstance(broken, KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            raise broken


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Running:
    made = Running(snapshot(guest("plain", 3), guest("web", 4, mark=Mark("strict", 300, "batch"))))
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return made


def asked(service: Running) -> list[str]:
    """The policies that were marked."""
    return [call[2] for call in service.calls if call[0] in ("mark", "change")]


@pytest.mark.parametrize("name", ["plain", "web"])
def test_every_round_has_each_arm(service: Running, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Each said as it begins; the mark is what it was, and none where there was none."""
    before = service.now.state.find(name).mark
    code, out, err = run(capsys, "compare", name, "--rounds", "3")
    assert (code, [line.split()[0] for line in out.splitlines()[2:5]]) == (0, list(ARMS))
    assert len(err.splitlines()) == 9 and err.startswith("round 1 of 3: ")
    policies = asked(service)
    assert all(sorted(policies[n : n + 3]) == sorted(ARMS) for n in (0, 3, 6))
    assert service.now.state.find(name).mark == before
    document = json.loads(run(capsys, "--json", "compare", name, "--rounds", "2")[1])
    assert [(arm["arm"], arm["pause_per_cpu_second"]["n"]) for arm in document["arms"]] == [
        (arm, 2) for arm in ARMS
    ]


@pytest.mark.parametrize("broken", [InvalidArgument("no"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", ["plain", "web"])
def test_the_mark_is_put_back_however_it_ends(
    service: Running, capsys: pytest.CaptureFixture[str], broken: BaseException, name: str
) -> None:
    """Refused half way, or ended by a signal; signals then do what they did before."""
    before, handler = service.now.state.find(name).mark, signal.getsignal(signal.SIGTERM)
    service.breaks = broken
    assert run(capsys, "compare", name)[0] == 1
    assert service.now.state.find(name).mark == before
    assert signal.getsignal(signal.SIGTERM) is handler


def test_compare_changes_no_domain_that_it_cannot_restore(
    service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """The domain does not run, or its mark leaves the policy to others."""
    service.now = snapshot(guest("down"), guest("open", 4, mark=Mark(None)))
    assert "error: domain is not running\n" in run(capsys, "compare", "down")[2]
    assert "names no policy" in run(capsys, "compare", "open")[2]
    assert asked(service) == []


def test_differences_are_taken_within_a_round() -> None:
    """An effect of a round on all arms is in no difference; an unknown value is in no mean."""

    def arm(*pauses: float | None) -> list[dict[str, Any]]:
        return [{"pause_per_cpu_second": pause, "wait_per_cpu_second": None} for pause in pauses]

    found = compared("web", "u", {"off": arm(100, 300, 500), "relaxed": arm(50, 250, None)})
    off, relaxed = (one.pause_per_cpu_second for one in found.arms)
    assert off == Difference(3, 300, None, None, None)
    assert relaxed == Difference(2, 150, -50, -50, -50)
    assert found.arms[0].wait_per_cpu_second.n == 0
    assert shown(found).splitlines()[3].split() == ["relaxed", "2", "150", "-50", "-50", "to", "-50"]


def test_the_interval_is_student_s() -> None:
    """The interval is that of the tables, and from many values on nearly the normal one."""
    assert interval95([]) == (None, None)
    assert interval95([3.0]) == (3.0, None)
    mean, half = interval95([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5))
    _, half = interval95([0.0, 1.0] * 50)
    assert half == pytest.approx(1.984 * (25 / 99) ** 0.5 / 10, rel=1e-3)
