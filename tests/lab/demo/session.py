# SPDX-License-Identifier: Apache-2.0
"""One load with PLE on or off through its three phases: default scheduler, gangs, default again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import hostaccount
from demo.figures import TOTAL, Figures, Reading, medians, repeat_figures, without_pause
from demo.guests import Guest, GuestDied, Load, start
from demo.hostaccount import Account, Difference
from demo.machine import Machine, between
from demo.service import Call, Daemon, gangctls, gangctls_at_once
from demo.settings import Settings

QUIET_SECONDS = 15.0
PHASES = ("default", "gang", "after")
SETTLE_SECONDS = 2.0
START_SECONDS = 6.0  # what libvirtd, udev and machined still do after a guest has started


class GaveUp(Exception):
    """Guests died more often, or everything took longer, than can be put up with."""


class Starved(Exception):
    """A guest made no progress because it got no CPU: that is no accident of the lab."""


@dataclass
class Phase:
    """What was measured in one phase. failures: sentences; disturbed: thrown away for the machine's noise."""

    repeats: list[Mapping[str, Figures]] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    disturbed: int = 0
    failures: list[str] = field(default_factory=list)
    measured: bool = False

    @property
    def figures(self) -> dict[str, Figures]:
        """Medians by guest, and of all."""
        return medians(self.repeats)

    @property
    def totals(self) -> list[float]:
        """The throughput of all guests in every repeat."""
        return [value for repeat in self.repeats if (value := repeat[TOTAL].throughput) is not None]


@dataclass
class Run:
    """One load with PLE on or off. differing: settings that were different while marked."""

    load: str
    ple: bool
    uuids: dict[str, str] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    marks: list[Call] = field(default_factory=list)
    unmarks: list[Call] = field(default_factory=list)
    differing: int | None = None
    differences: list[Difference] | None = None
    compared: int = 0


class Session:
    """Makes Runs, one at a time."""

    def __init__(self, connection: Any, kernel: Path, daemon: Daemon, machine: Machine, settings: Settings,
                 say: Callable[[str], None], quick: bool = False) -> None:  # fmt: skip
        self._connection = connection
        self._kernel = kernel
        self._daemon = daemon
        self._machine = machine
        self._settings = settings
        self._say = say
        self._quick = quick
        self._guests: list[Guest] = []
        self._before: Account = {}
        self._failed = 0

    def run(self, load: Load, run: Run, hook: Callable[[], None] | None = None) -> None:
        """All three phases into `run`; `hook` is called once while the guests are gangs.

        Raises GaveUp or Starved, or OSError when the host does not do as it is told.
        """
        self._failed = 0
        try:
            for phase in PHASES:
                self._enter(phase, load, run, fresh=phase == PHASES[0])
                self._measure(phase, load, run)
                if phase == "gang" and hook:
                    hook()
        finally:
            self._end()

    def _enter(self, phase: str, load: Load, run: Run, fresh: bool) -> None:
        """Bring the guests into the phase: from the one before, or from nothing if `fresh`."""
        while True:
            try:
                if fresh:
                    self._start(load, run)
                    time.sleep(START_SECONDS)
                for step in PHASES[1 if fresh else PHASES.index(phase) :]:
                    if PHASES.index(step) > PHASES.index(phase):
                        break
                    self._mark(run) if step == "gang" else self._unmark(run)
                time.sleep(SETTLE_SECONDS)
                return
            except GuestDied as death:
                self._died(run.phases.setdefault(phase, Phase()), death)
                fresh = True

    def _start(self, load: Load, run: Run) -> None:
        self._end()
        self._say(f"starting {self._settings.guests} guests with {load.cpus} vCPUs each")
        self._guests = start(self._connection, self._kernel, load, self._settings.guests)
        run.uuids = {guest.name: guest.uuid for guest in self._guests}
        self._wait_until_watched()

    def _wait_until_watched(self) -> None:
        """The daemon hears of guests by events: wait until its probes count them all."""
        for _ in range(60):
            scrape = self._daemon.scrape()
            if all(scrape.guest(guest.name).run_seconds for guest in self._guests):
                return
            time.sleep(0.5)
        raise OSError("gangd does not count the guests' run time: its probes are not loaded (gangctl status)")

    def _mark(self, run: Run) -> None:
        self._check()
        self._before = hostaccount.account(self._guests)
        run.marks = self._all("mark")
        run.differing = len(hostaccount.compare(self._before, hostaccount.account(self._guests)))

    def _unmark(self, run: Run) -> None:
        self._check()
        run.unmarks = self._all("unmark")
        now = hostaccount.account(self._guests)
        run.compared = len(now)
        run.differences = hostaccount.compare(self._before, now)

    def _all(self, command: str) -> list[Call]:
        """By gangctl as anybody calls it; after the first run with one Python for all, to save minutes."""
        self._say(f"gangctl {command}, all guests")
        run_all = gangctls_at_once if self._quick else gangctls
        try:
            calls = run_all([(command, guest.name) for guest in self._guests])
        except OSError:
            self._check()  # of a dead guest it is the death that matters
            raise
        for call in calls:
            self._say(f"  {call.output.strip()}  ({call.seconds:.1f} s)")
        self._check()
        return calls

    def _measure(self, name: str, load: Load, run: Run) -> None:
        """Repeat until there are enough good repeats, or too many bad ones."""
        phase = run.phases.setdefault(name, Phase())
        while len(phase.repeats) < self._settings.repeats:
            if time.monotonic() > self._settings.deadline:
                raise GaveUp("the time is up: too many repeats had to be thrown away")
            try:
                figures, noise = self._repeat()
            except GuestDied as death:
                self._died(phase, death)
                self._enter(name, load, run, fresh=True)
                continue
            if noise > self._settings.disturbed_share:
                phase.disturbed += 1
                self._say(f"{name}: thrown away: the machine's CPUs were taken for {noise:.0%} of the time")
                if phase.disturbed > self._settings.disturbed_limit:
                    return
                self._wait_for_quiet()
                continue
            phase.repeats.append(figures if run.ple else without_pause(figures))
            phase.noise.append(noise)
            self._progress(name, phase)
        phase.measured = True

    def _progress(self, name: str, phase: Phase) -> None:
        figures = phase.repeats[-1][TOTAL]
        corun = "-" if figures.corun is None else f"{figures.corun:.0%}"
        count = f"{len(phase.repeats)}/{self._settings.repeats}"
        self._say(f"{name} {count}: {figures.throughput or 0:,.0f} iterations/s, co-run {corun}, "
                  f"noise {phase.noise[-1]:.1%}")  # fmt: skip

    def _wait_for_quiet(self) -> None:
        """For a while only: a machine that stays busy is for `disturbed_limit` to deal with."""
        end = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end:
            before = self._machine.sample()
            time.sleep(1)
            if not between(before, self._machine.sample()).disturbed(self._settings.disturbed_share):
                return

    def _repeat(self) -> tuple[dict[str, Figures], float]:
        quiet = self._machine.sample()
        progress, begin = self._progress_now(), self._daemon.scrape()
        time.sleep(self._settings.seconds)
        end, later = self._daemon.scrape(), self._progress_now()
        noise = between(quiet, self._machine.sample())
        early = {name: Reading(*counted, begin.guest(name)) for name, counted in progress.items()}
        late = {name: Reading(*counted, end.guest(name)) for name, counted in later.items()}
        for guest in self._guests:
            self._check_progress(guest, early[guest.name], late[guest.name])
        return repeat_figures(early, late), max(noise.wait_share, noise.steal_share)

    def _progress_now(self) -> dict[str, tuple[float, int]]:
        """The guests' own counters. Reading them is work for libvirt and QEMU, which competes with the
        guests: it happens outside the time over which the daemon's counters are compared."""
        return {guest.name: guest.iterations() for guest in self._guests}

    def _check_progress(self, guest: Guest, begin: Reading, end: Reading) -> None:
        guest.check()
        if end.iterations > begin.iterations:
            return
        seconds = end.counts.time - begin.counts.time
        ran = (end.counts.cpu_seconds or 0) - (begin.counts.cpu_seconds or 0)
        waited = (end.counts.run_delay_seconds or 0) - (begin.counts.run_delay_seconds or 0)
        if ran < seconds / 100 and waited > seconds / 2:
            raise Starved(f"{guest.name} got no CPU for {seconds:.0f} s although it wanted one")
        raise GuestDied(f"{guest.name} runs but counts no more")

    def _check(self) -> None:
        for guest in self._guests:
            guest.check()

    def _died(self, phase: Phase, death: GuestDied) -> None:
        phase.failures.append(str(death))
        self._failed += 1
        self._say(f"lab failure, thrown away: {death}")
        if self._failed > self._settings.failure_limit:
            raise GaveUp(f"guests died {self._failed} times under this load; the last time: {death}")

    def _end(self) -> None:
        for guest in self._guests:
            guest.destroy()
        self._guests = []
