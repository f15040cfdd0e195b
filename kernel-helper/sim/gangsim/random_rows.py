# SPDX-License-Identifier: Apache-2.0
"""The rows of a host made by chance: of its parties the one worst off by CPUs, by rounds and by its wait.

Each party is judged as a row of its own, against its ideal or what the default scheduler gives it on the same
host, whichever is less, and against its longest wait there, or its ideal's. The worst of each kind is in the
list. Rounds are judged of guests that are due time for some turns: of one or two, chance decides.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gangsim import bars, ideal
from gangsim.engine import Run
from gangsim.found import Found, Runner, measured
from gangsim.harm_rows import Row, longest, rounds, share
from gangsim.random_hosts import Maker

KINDS = ("CPUs", "rounds/s", "longest wait ms")


def of_host(seed: int, masks: bool, run: Runner) -> list[Found]:
    """The worst party of each kind; one line if the kernel ejects a scheduler."""
    made = Maker(seed, masks)
    title = f"{'masked' if masks else 'random'} host {seed}"
    found: dict[str, list[Found]] = {kind: [] for kind in KINDS}
    for kind, row in _rows(made, run):
        one = replace(measured(row, run, seed), seed=seed, kind=kind)
        if one.ratio is not None:
            found[kind].append(replace(one, name=f"{title}: {one.name}, {kind}"))
        elif ":" in one.verdict:
            return [_ejected(made, run, replace(one, name=title))]
    return [_worst(kind, parties) for kind, parties in found.items() if parties]


def _worst(kind: str, found: list[Found]) -> Found:
    pick = max if kind == KINDS[2] else min
    return pick(found, key=lambda one: (one.ratio, one.name))


def _rows(made: Maker, run: Runner) -> Iterator[tuple[str, Row]]:
    default = run(made.scenario, "default", (0, 0))
    for name, due in made.ideal.items():
        if min(due, default.share(name)) > 0:
            yield KINDS[0], Row(name, made.scenario, share(name), bars.WORST, seeds=1, fair=due)
    for number, guest in enumerate(made.scenario.guests):
        if guest.load in ("barrier", "ipi"):
            name = guest.called(number)
            due, had = _rounds_due(made, number, default)
            if min(due, had) >= bars.FEWEST:
                yield KINDS[1], Row(name, made.scenario, rounds(number), bars.WORST, seeds=1, fair=due)
    for name in made.ideal:
        yield (
            KINDS[2],
            Row(
                name,
                made.scenario,
                longest(name),
                bars.WAIT,
                "most",
                1,
                floor=ideal.wait_ms(made.scenario, name, made.ideal[name]),
            ),
        )


def _rounds_due(made: Maker, number: int, default: Run) -> tuple[float, float]:
    """Return the rounds a second that the guest is due, 0 if its time is too short for turns, and default's.

    A marked guest's are in step. An unmarked one's are default's, as far as it is due the CPUs that it had.
    """
    guest, scenario = made.scenario.guests[number], made.scenario
    cpus, had = made.ideal[guest.called(number)], default.guests[number]["rounds"] / default.seconds
    if cpus / guest.members * scenario.seconds < bars.TURNS * bars.TURN_SECONDS:
        return 0.0, had
    if guest.marked:
        return ideal.rounds(scenario, number, cpus), had
    return had * min(1.0, cpus / default.share(guest.called(number))), had


def _ejected(made: Maker, run: Runner, one: Found) -> Found:
    """Return the line, excused where default, too, lets a task wait longer than the kernel has patience."""
    waited = longest()(run(made.scenario, "default", (0, 0)))
    if one.verdict.startswith("ejected") and (waited or 0) > bars.PATIENCE_MS:
        return replace(one, verdict=f"{bars.AS_DEFAULT}: {one.verdict}")
    return one


def medians(title: str, found: Sequence[Found]) -> list[Found]:
    """The row of all hosts of a group: the median of what their worst parties have of their CPUs."""
    parts = [one.ratio for one in found if one.kind == KINDS[0] and one.ratio is not None]
    if len(parts) < 2:
        return []
    middle, bar = statistics.median(parts), f">= {bars.MEDIAN:.2f}"
    verdict = bars.judge(1.0, middle, bars.MEDIAN, "least")
    return [Found(f"{title} hosts: median of these CPUs", None, None, middle, bars.MEDIAN, bar, verdict)]


def spread(title: str, found: Sequence[Found], worst: int = 5) -> list[str]:
    """A line for each kind: the worst, the median, the number missed, the seeds of the worst five."""
    lines = []
    for kind in KINDS:
        mine = sorted((one for one in found if one.kind == kind and one.ratio is not None),
                      key=lambda one: one.ratio or 0, reverse=kind == KINDS[2])  # fmt: skip
        if not mine:
            continue
        ratios = [one.ratio or 0 for one in mine]
        seeds = ", ".join(f"{one.seed} ({one.ratio:.2f})" for one in mine[:worst])
        lines.append(
            f"{title}, {kind}: worst {ratios[0]:.2f}, median {statistics.median(ratios):.3f}, "
            f"{sum(not one.harmless for one in mine)} of {len(mine)} missed; worst seeds {seeds}"
        )
    return lines
