# SPDX-License-Identifier: Apache-2.0
"""kill -9 after every single step of a life of gangd: a successor finds everything and puts it back.

The actuators, the executor and the journal are the real ones; the host is a directory
(kernel.py), so that it outlives the process.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangd.actuate.affinity import Affinity
from gangd.actuate.backend import Backend
from gangd.actuate.base import Report
from gangd.actuate.executor import Executor
from gangd.actuate.gang import Gangs
from gangd.actuate.limits import Limits
from gangd.actuate.scope import Scope
from gangd.actuate.smt import KEY, SmtControl
from gangd.model.domain import Mode
from gangd.model.plan import Cache, GangPlan, HelperPlace, Placement, Plan
from lives import Died, MortalJournal, Steps, die, kill

from .kernel import ALL, Guest, Host, Kernel

Cpus = tuple[int, int]
Act = Callable[[Executor], Report]


class Engine:
    """A scheduler in the kernel that takes every order; it goes with the process that loaded it."""

    def __getattr__(self, order: str) -> Callable[..., Any]:
        return lambda *_args: {} if order in ("counters", "histograms") else None


@dataclass(frozen=True)
class World:
    """A host below `folder`, and whether gangd may widen AllowedCPUs=."""

    folder: Path
    widen: bool = True

    @property
    def host(self) -> Host:
        return Host(self.folder / "host")

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def live(self, acts: Iterable[Act], steps: Steps | None = None) -> list[Report]:
        """Live one life of gangd; it ends before its time when `steps` say so."""
        host, steps = self.host, steps or Steps()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MortalJournal, "steps", steps)
            Kernel(steps).boot(patch)
            limits = Limits(self.widen, True)
            executor = Executor(
                [
                    Scope(host, host.groups, limits, host.root),
                    Affinity(host.find, host.root, write=host.ask),
                    SmtControl(host.root),
                    Gangs(20_000, [Backend("fake", lambda: None, Engine)]),
                ],
                MortalJournal(self.journal),
            )
            return [act(executor) for act in acts]


def born(folder: Path, widen: bool = True) -> World:
    world = World(folder, widen)
    world.host.start()
    return world


def gang(guest: Guest, cpus: Cpus, asked: int | None) -> GangPlan:
    places = tuple(Placement(vcpu, guest.pid + vcpu, cpu, "test") for vcpu, cpu in enumerate(cpus))
    helpers = tuple(HelperPlace(name, ALL - set(cpus), "test") for name in ("emulator", "iothread/1"))
    return GangPlan(
        guest.uuid, guest.label, guest.pid, Mode.RELAXED, 0, places, "test", helpers=helpers, asked=asked
    )


def reconcile(a: Cpus | None, b: Cpus | None, asked: int | None = None) -> Act:
    """Return an act that wants the guests "a" and "b" on these CPUs; None: not marked."""

    def act(executor: Executor) -> Report:
        guests = zip(Host(Path()).guests, (a, b), strict=True)
        gangs = tuple(gang(guest, cpus, asked) for guest, cpus in guests if cpus)
        return executor.reconcile(Plan((Cache(0, tuple(sorted(ALL)), "test"),), gangs))

    return act


def undo(executor: Executor) -> Report:
    return executor.undo()


def undo_a(executor: Executor) -> Report:
    return executor.undo(Host(Path()).guests[0].uuid)


def smt(word: str) -> Act:
    """Switched by an operator, as gangd.host_thread.Host.set_smt does it."""

    def act(executor: Executor) -> Report:
        executor.set(SmtControl.name, KEY, word)
        return Report()

    return act


LIVES: dict[str, list[Act]] = {
    "apply": [reconcile((4, 5), (1, 2), 300)],
    "apply again, changed": [
        reconcile((4, 5), None),
        reconcile((6, 7), (4, 5), 200),
        reconcile((0, 1), None),
    ],
    "undo": [reconcile((4, 5), (1, 2), 300), undo_a, reconcile((1, 4), (1, 4)), undo],
    "without SMT": [
        reconcile((4, 5), (1, 2), 300),
        smt("off"),
        reconcile((0, 1), (2, 3), 300),
        undo_a,
        reconcile(None, None),
        smt("on"),
        smt("off"),
    ],
    "only undo": [undo],
}
CASES = [(life, True) for life in LIVES if life != "only undo"] + [("apply", False)]


def one_life(line: str) -> None:
    """Live in a folder until SIGKILL comes after some step; `line` is JSON."""
    folder, widen, life, last = json.loads(line)
    World(Path(folder), widen).live(LIVES[life], Steps(last, kill))


Killed = Callable[[World, str, int], bool]


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """Runs a life that is killed after its last step; False: it came to its end."""
    code = f"import lives; from {__package__} import test_crash; lives.serve(test_crash.one_life)"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        to, back = server.stdin, server.stdout

        def live(world: World, life: str, last: int) -> bool:
            to.write(json.dumps([str(world.folder), world.widen, life, last]) + "\n")
            to.flush()
            status = int(back.readline())
            assert status in (0, -signal.SIGKILL)
            return status != 0

        yield live
        to.close()


@pytest.mark.parametrize(("life", "widen"), CASES)
def test_killed_after_every_step(killed: Killed, tmp_path: Path, life: str, widen: bool) -> None:
    """SIGKILL at step 0, 1, 2, ...; then `undo` in another process puts the host back as it was."""
    for last in itertools.count():
        world = born(tmp_path / str(last), widen)
        before = world.host.picture()
        dead = killed(world, life, last)
        # The undo is killed as well, at another step every time.
        killed(world, "only undo", last * 7 % 40)
        (report,) = world.live([undo])
        assert report.failures == (), f"killed after step {last}"
        assert world.host.picture() == before, f"killed after step {last}"
        assert MortalJournal(world.journal).entries == {}
        if not dead:
            break
    assert last > 15  # without widening; some settings share a flush of the journal


@pytest.mark.parametrize("last", range(0, 150, 5))
def test_a_killed_gangd_is_started_again(killed: Killed, tmp_path: Path, last: int) -> None:
    """The gangd after a killed one leaves the host as its plan wants it; its undo then restores the host."""
    world = born(tmp_path)
    before = world.host.picture()
    killed(world, "undo", last)
    (report,) = world.live([reconcile((6, 7), (0, 3), 400)])
    assert report.failures == ()
    calm = born(tmp_path / "calm")
    calm.live([reconcile((6, 7), (0, 3), 400)])
    assert settled(world.host) == settled(calm.host)
    world.live([undo])
    assert world.host.picture() == before


def settled(host: Host) -> dict[str, str]:
    """The picture, but for AllowedCPUs=, which is as wide as it once had to be."""
    return {name: text for name, text in host.picture().items() if not name.endswith("AllowedCPUs")}


cpus = st.none() | st.tuples(st.integers(0, 7), st.integers(0, 7))
acts = st.builds(reconcile, cpus, cpus, st.none() | st.integers(1, 3)) | st.sampled_from(
    [undo, undo_a, smt("on"), smt("off")]
)
lives = st.lists(st.tuples(st.lists(acts, max_size=4), st.integers(0, 120)), max_size=4)


@settings(max_examples=200, deadline=None)
@given(lives, st.booleans())
def test_any_number_of_deaths_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[list[Act], int]], widen: bool
) -> None:
    """Lives that each end at some step, as an exception that nobody catches; then one that does not."""
    world = born(tmp_path_factory.mktemp("world"), widen)
    before = world.host.picture()
    for acts, last in lives:
        try:
            world.live(acts, Steps(last, die))
        except Died:
            continue
    (report,) = world.live([undo])
    assert report.failures == ()
    assert world.host.picture() == before
