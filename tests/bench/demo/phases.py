# SPDX-License-Identifier: Apache-2.0
"""Takes mixed guests through four phases: default scheduler, pinned by gangd, gangs, default again.

Pinned is gangd's own policy `balance`: each vCPU on a CPU of its own, and the default scheduler. So it is
seen which part of a gain pins alone would bring. A gang is not pinned, and is what a plain mark makes: by
`adaptive`, as the guests are crowded.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.demo.settings import Settings
from lab.guests.domains import Guest, GuestDied
from lab.observe import hostaccount, timeline
from lab.observe.figures import Figures, Reading, medians, repeat_figures, without_pause
from lab.observe.hostaccount import Account, Difference
from lab.observe.machine import Machine, between
from lab.observe.service import Call, Daemon, gangctl, gangctls
from lab.observe.timeline import Stretch

QUIET_SECONDS = 15.0
PHASES = ("default", "pinned", "gang", "after")
SETTLE_SECONDS = 1.0
START_SECONDS = 3.0  # what libvirtd, udev and machined still do after a guest has started
FREE_SECONDS = 10.0  # for the kernel to free what was detached
STATE_SECONDS = 90.0  # the kernel verifies the scheduler


class Starved(GuestDied):
    """A guest made no progress because it got no CPU: that is no accident of the lab."""


@dataclass
class Phase:
    """The measurements of one phase. disturbed: repeats thrown away for the machine's noise."""

    repeats: list[Mapping[str, Figures]] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    disturbed: int = 0
    measured: bool = False
    cpus: Mapping[str, list[list[int]]] = field(default_factory=dict)
    timeline: list[Stretch] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, Figures]:
        """The medians by guest, and of all."""
        return medians(self.repeats)


@dataclass
class Lost:
    """A guest was lost, in this phase."""

    phase: str
    sentence: str


@dataclass
class Run:
    """A run of so many guests of each load, with PLE on or off. loads, uuids: by the guest's name.

    differing: settings that were different while they were gangs.
    """

    planned: Mapping[str, int]
    ple: bool
    loads: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    lost: Lost | None = None
    differing: int | None = None
    differences: list[Difference] | None = None
    compared: int = 0


class Session:
    """Takes running guests through the phases, once."""

    def __init__(self, guests: Mapping[Guest, str], run: Run, daemon: Daemon, machine: Machine | None,
                 settings: Settings, say: Callable[[str], None], quick: bool) -> None:  # fmt: skip
        self._guests = list(guests)
        run.loads = {guest.name: load for guest, load in guests.items()}
        run.uuids = {guest.name: guest.uuid for guest in guests}
        self._run = run
        self._daemon = daemon
        self._machine = machine
        self._settings = settings
        self._say = say
        self._called_before = quick
        self._before: Account = {}

    def run(self) -> None:
        """All phases into the run. A lost guest ends it, and is kept there.

        Raises OSError when the host does not do as it is told.
        """
        name = PHASES[0]
        try:
            self._wait_until_watched()
            time.sleep(START_SECONDS)
            for name in PHASES:
                phase = self._run.phases.setdefault(name, Phase())
                self._enter(name)
                time.sleep(SETTLE_SECONDS)
                self._measure(name, phase)
        except GuestDied as found:
            self._run.lost = Lost(name, str(found))
            self._say(f"{name}: {found}")

    def _wait_until_watched(self) -> None:
        """The daemon hears of guests by events: wait until its probes count them all."""
        for _ in range(60):
            scrape = self._daemon.scrape()
            if all(scrape.guest(guest.name).run_seconds for guest in self._guests):
                return
            time.sleep(0.5)
        raise OSError("gangd does not count the guests' run time: its probes are not loaded (gangctl status)")

    def _enter(self, phase: str) -> None:
        names = [guest.name for guest in self._guests]
        if phase == "pinned":
            self._before = hostaccount.account(self._guests)
            if self._called_before:
                self._all(*(("mark", name, "--policy", "balance") for name in names))
            else:  # one as a user calls it: Python starts, and waits for its turn
                self._called([gangctl("mark", names[0], "--policy", "balance")])
                self._all(*(("mark", name, "--policy", "balance") for name in names[1:]))
        elif phase == "gang":
            self._all(*(("set", name, "--policy", "adaptive") for name in names))
            self._wait_for_scheduler("enabled")
            self._all(("--json", "status"))
            now = hostaccount.account(self._guests)
            self._run.differing = len(hostaccount.compare(self._before, now))
        elif phase == "after":
            self._all(*(("unmark", name) for name in names))
            self._all(("--json", "status"))
        if phase != "gang":
            self._wait_for_scheduler("disabled")
        if phase == "after":
            self._compare()
        self._check()

    def _compare(self) -> None:
        """Compare the host with what it was. The kernel frees programs some time after they were detached, so
        those that are left are looked for again, for a while."""
        began = time.monotonic()
        while True:
            now = hostaccount.account(self._guests)
            self._run.compared, self._run.differences = len(now), hostaccount.compare(self._before, now)
            waited = time.monotonic() - began
            left = sum(d.setting.startswith(hostaccount.OF_BPF) for d in self._run.differences)
            if not left or waited > FREE_SECONDS:
                break
            self._say(f"  {left} BPF programs are not freed yet ({waited:.1f} s)")
            time.sleep(0.5)

    def _all(self, *commands: tuple[str, ...]) -> None:
        self._say(f"gangctl {' '.join(commands[0])}{', and so all others' * (len(commands) > 1)}")
        try:
            self._called(gangctls(commands))
        except OSError:
            self._check()  # of a dead guest it is the death that matters
            raise

    def _called(self, calls: list[Call]) -> None:
        for call in calls:
            if call.words[0] == "--json":
                self._run.statuses.append(json.loads(call.output))
                continue
            self._run.calls.append(call)
            self._say(f"  {call.output.strip()}  ({call.seconds:.1f} s)")

    def _wait_for_scheduler(self, wanted: str) -> None:
        deadline = time.monotonic() + STATE_SECONDS
        while (state := (hostaccount.SCHED_EXT / "state").read_text().strip()) != wanted:
            if time.monotonic() > deadline:
                raise OSError(
                    f"sched_ext is {state} instead of {wanted}, {STATE_SECONDS:.0f} s after gangctl"
                )
            time.sleep(0.1)

    def _measure(self, name: str, phase: Phase) -> None:
        """Repeat until there are enough good repeats, or too many bad ones; then record a timeline."""
        while len(phase.repeats) < self._settings.repeats:
            figures, noise = self._repeat()
            if noise > self._settings.disturbed_share:
                phase.disturbed += 1
                self._say(f"{name}: thrown away: the machine's CPUs were taken for {noise:.0%} of the time")
                if phase.disturbed > self._settings.disturbed_limit:
                    return
                self._wait_for_quiet()
                continue
            phase.repeats.append(figures if self._run.ple else without_pause(figures))
            phase.noise.append(noise)
            self._progress(name, phase)
        phase.cpus = {
            guest.name: [sorted(os.sched_getaffinity(tid)) for _, tid in sorted(guest.threads().items())]
            for guest in self._guests
        }
        threads = {
            tid: (number, vcpu)
            for number, guest in enumerate(self._guests)
            for vcpu, tid in guest.threads().items()
        }
        phase.timeline = timeline.record(threads, self._settings.trace_seconds)
        phase.measured = True

    def _progress(self, name: str, phase: Phase) -> None:
        found = []
        for load in self._run.planned:
            figures = phase.repeats[-1][load]
            corun = "-" if figures.corun is None else f"{figures.corun:.0%}"
            found.append(f"{load} {figures.throughput or 0:,.0f}/s, co-run {corun}")
        self._say(f"{name} {len(phase.repeats)}/{self._settings.repeats}: {'; '.join(found)}")

    def _wait_for_quiet(self) -> None:
        """Wait up to QUIET_SECONDS for a quiet machine: one that stays busy is left to `disturbed_limit`."""
        end = time.monotonic() + QUIET_SECONDS
        while self._machine and time.monotonic() < end:
            before = self._machine.sample()
            time.sleep(1)
            if not between(before, self._machine.sample()).disturbed(self._settings.disturbed_share):
                return

    def _repeat(self) -> tuple[dict[str, Figures], float]:
        quiet = self._machine.sample() if self._machine else None
        progress, begin = self._progress_now(), self._daemon.scrape()
        self._daemon.watch(self._settings.seconds)
        end, later = self._daemon.scrape(), self._progress_now()
        early = {name: Reading(*counted, begin.guest(name)) for name, counted in progress.items()}
        late = {name: Reading(*counted, end.guest(name)) for name, counted in later.items()}
        for guest in self._guests:
            _check_progress(guest, early[guest.name], late[guest.name])
        noise = between(quiet, self._machine.sample()) if self._machine and quiet else None
        figures = repeat_figures(early, late, self._run.loads)
        return figures, max(noise.wait_share, noise.steal_share) if noise else 0.0

    def _progress_now(self) -> dict[str, tuple[float, int]]:
        """The guests' own counters. Reading them is work for libvirt and QEMU, which competes with the
        guests: it happens outside the time over which the daemon's counters are compared."""
        return {guest.name: guest.reading() for guest in self._guests}

    def _check(self) -> None:
        for guest in self._guests:
            guest.check()


def _check_progress(guest: Guest, begin: Reading, end: Reading) -> None:
    """Raise Starved or GuestDied for a guest that counted no further."""
    guest.check()
    if end.iterations > begin.iterations:
        return
    seconds = end.counts.time - begin.counts.time
    ran = (end.counts.cpu_seconds or 0) - (begin.counts.cpu_seconds or 0)
    waited = (end.counts.run_delay_seconds or 0) - (begin.counts.run_delay_seconds or 0)
    if ran < seconds / 100 and waited > seconds / 2:
        raise Starved(f"{guest.name} got no CPU for {seconds:.0f} s although it wanted one")
    raise GuestDied(f"{guest.name} runs but counts no more")
