# SPDX-License-Identifier: Apache-2.0
"""KVM guests that want all of both CPUs, as gangs: how far they run together, in figures of the kernel's
tracer, which owe gangd nothing. Without systemd, libvirt or the daemon; in virtual time, or the figures are
the machine's underneath.

    check_   on every row that schedules gangs     strict_   where CPUs can be kicked

They pause as seldom as on a CPU with a pause filter: a guest that leaves at every PAUSE gives its CPU away
most of the time, and what is measured then is that (gang.py counts its LHP).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from dataclasses import replace
from typing import NamedTuple

from gangd.measure.probes import Probes
from gangd.model.domain import Domain, Mode
from gangd.trace import blocks
from gangd.trace.recorder import record
from gangd.trace.timeline import build
from vm.checks.inside import host
from vm.checks.inside.check import figure, note, run, wait_for
from vm.checks.inside.direct import payload_guest
from vm.checks.inside.threads import Group, Rig, busy

LOADS = {"b0": "barrier", "b1": "barrier", "s2": "spin"}
CPUS = (0, 1)
FEATURES: dict[str, bool] = json.loads(os.environ["GANGD_FEATURES"])
WINDOW = 3000
WINDOWS, SECONDS = 3, 3.0
CORUN, CORUN_AGREES = 0.9, 0.05
TRACE_AGREES, TURNS_LAST = 0.02, 10  # turns after the last reading of the recorder's
STARTS, PROMPT_SECONDS, PROMPT = 20, 0.001, 0.9

rig = Rig(CPUS)
probes = Probes()
stack = contextlib.ExitStack()
guests: dict[str, Domain] = {}
kept: list[Window] = []


class Window(NamedTuple):
    """A trace, and by guest its co-run share by the probes and by the tracer."""

    trace: host.Traced
    told: dict[str, float]
    seen: dict[str, float]


def groups() -> list[Group]:
    """The guests, as gangs over both CPUs."""
    return [Group(name, guest.pid or 0, tuple(tids(name)), CPUS) for name, guest in guests.items()]


def tids(name: str) -> list[int]:
    """A guest's vCPU threads."""
    return [vcpu.tid or 0 for vcpu in guests[name].vcpus]


def start() -> None:
    """The guests, whose vCPUs may run on any CPU, watched by the probes."""
    for name, load in LOADS.items():
        guests[name] = stack.enter_context(payload_guest(load, window=WINDOW, name=name))
    for group in groups():
        group.let_go()
    probes.sync(guests.values())
    assert probes.reason == "", f"{probes.reason}\n{probes.log[-3000:]}"
    time.sleep(2.0)  # they start


def window() -> Window:
    """Return a trace of SECONDS and each guest's co-run shares in it."""
    with host.traced(tid for name in guests for tid in tids(name)) as trace:
        before, begin = probes.read(), host.now()
        time.sleep(SECONDS)
        end, after = host.now(), probes.read()
    told = {
        name: (after[guest.uuid].corun_seconds - before[guest.uuid].corun_seconds)
        / (after[guest.uuid].run_seconds - before[guest.uuid].run_seconds)
        for name, guest in guests.items()
    }
    seen = {name: trace.account(tids(name), begin, end).share for name in guests}
    return Window(trace, told, seen)


def windows() -> list[Window]:
    """Return the windows with all guests as gangs, measured once."""
    if not kept:
        rig.schedule(*groups())
        time.sleep(0.5)
        kept.extend(window() for _ in range(WINDOWS))
    return kept


def check_by_default_they_do_not() -> None:
    """Under the default scheduler, with an ordinary task on one of the CPUs, most guests run together for
    less than half of their time: there is something to gain, and the tracer can tell. (Without the task both
    CPUs take their turns in phase, for nothing disturbs virtual time. With it one guest of three may: on 6.16
    one did.)"""
    with busy(1) as (_, (task,)):
        os.sched_setaffinity(task, {1})
        time.sleep(0.5)
        found = window()
    note(", ".join(f"{name}: {share:.1%}" for name, share in found.seen.items()))
    assert statistics.median(found.seen.values()) < 0.5


def check_guests_run_together() -> None:
    """At least 0.9 of the time that a guest runs as a gang is co-run time, by the kernel's tracer, in every
    window, whether its vCPUs wait for each other or not; the probes say the same."""
    for name in guests:
        found = [(one.seen[name], one.told[name]) for one in windows()]
        for seen, _ in found:
            figure("guest_corun", seen)
        note(f"{name}: " + ", ".join(f"{seen:.1%} (probes {told:.1%})" for seen, told in found))
        assert all(seen >= CORUN and abs(seen - told) <= CORUN_AGREES for seen, told in found)


def check_they_start_at_once() -> None:
    """Whenever a guest comes to the CPUs, its vCPUs do so within a millisecond of each other in at least
    nine of ten cases, by the kernel's tracer."""
    for name in guests:
        found = [skew for one in windows() for skew in one.trace.starts(tids(name))]
        ended = sorted(skew for skew in found if skew is not None)
        prompt = sum(skew <= PROMPT_SECONDS for skew in ended)
        note(f"{name}: {prompt} of {len(found)} starts within {PROMPT_SECONDS * 1e3:g} ms, "
             f"{len(found) - len(ended)} never; half within {ended[len(ended) // 2] * 1e6:.0f} us, "
             f"all within {ended[-1] * 1e3:.2f} ms")  # fmt: skip
        assert len(found) > STARTS
        assert prompt >= PROMPT * len(found)


def check_a_trace_says_what_the_tracer_says() -> None:
    """A recording of gangctl trace has the waits and co-run shares of gangs that the kernel's tracer has, and
    the turns that the scheduler counts."""
    windows()
    everybody = groups()
    threads = {tid: (n, v) for n, group in enumerate(everybody) for v, tid in enumerate(group.tids)}
    counted: list[list[int]] = []  # turns of each, whenever the recorder reads its ring
    with host.traced(threads) as trace:
        recording = record(
            threads, SECONDS, lambda *_: counted.append([rig.stats(group).turns or 0 for group in everybody])
        )
    assert not recording.lost and not recording.missing, recording.missing
    timeline = build(recording, threads)
    for line in blocks.lines(timeline.window(1e6, 1e5), 100):
        note(line)
    for n, (group, found) in enumerate(zip(everybody, timeline.shares(len(everybody)), strict=True)):
        seen = trace.account(group.tids, recording.begin / 1e9, recording.end / 1e9)
        waits, turns = sum(seen.waits.values()), counted[-1][n] - counted[0][n]
        note(f"{group.name}: ran {found.run:.3f} s, waited {found.wait:.3f} ({waits:.3f} by the tracer), "
             f"co-run {found.corun:.3f} ({seen.share:.3f}), {found.turns} turns ({turns})")  # fmt: skip
        assert found.corun is not None and abs(found.corun - seen.share) < TRACE_AGREES
        assert abs(found.wait - waits) < TRACE_AGREES * waits
        assert 0 < turns <= found.turns <= turns + TURNS_LAST


def strict_guest_shares_its_core_with_nobody() -> None:
    """A strict guest is on no core together with another for longer than a switch takes."""
    strict, *others = groups()
    rig.schedule(replace(strict, mode=Mode.STRICT), *others)
    time.sleep(0.5)
    with host.traced(tid for group in groups() for tid in group.tids) as trace:
        time.sleep(SECONDS)
    watched = trace.beside(strict.tids, [tid for group in others for tid in group.tids])
    figure("overlap_seconds", max(watched.overlaps, default=0.0))
    note(str(watched))
    assert watched.ran > 0.3 * SECONDS
    watched.no_longer_than_a_switch()


def check_unloads_clean() -> None:
    """Scheduler and probes go with the guests."""
    assert rig.executor.undo().failures == ()
    probes.close("done")
    stack.close()
    wait_for(lambda: not host.our_programs(), 5, "nothing of ours is in the kernel")


if __name__ == "__main__":
    start()
    run(__file__, dict(globals()), ("check_", *(["strict_"] if FEATURES["kick_cpu"] else [])))
