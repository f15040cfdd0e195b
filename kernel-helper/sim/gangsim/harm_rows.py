# SPDX-License-Identifier: Apache-2.0
"""The rows of `make bench-harm`: who might be worse off for gangs being there, and by how much at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gangsim import bars
from gangsim.bars import Bound
from gangsim.engine import Run
from gangsim.figures import parties
from gangsim.scenario import Group, Guest, Host, Scenario, Task

Figure = Callable[[Run], float | None]
Trace = tuple[int, int]
FOUR = Host(4, 1, 4)
SHOWN = (1_000_000_000, 1_050_000_000)  # ns: of the idle host


@dataclass(frozen=True)
class Row:
    """A figure of a scenario, and what its ratio gangs / default has to be.

    name: who, beside whom, and which figure in which unit. figure: of one run; None: the run does not say.
    bound: least: the ratio is to be `wanted` or more; most: or less; within: from `wanted` to bars.SLACK.
    ideal: what the ratio is to, where default's figure is none to ask for: the share by hierarchical max-min
    division (Bertsekas and Gallager), or a figure that the note beside it explains.
    fair: such an ideal, where the ratio is to that or to default's figure, whichever is less: nobody has to
    be given more than its share, nor to be better off than by default.
    slack: the most that it may be of the greater of default's and the ideal; None: no bound.
    floor: for most: figures below it count as equal to it.
    seeds: runs of each scheduler, whose median counts. Nine, as default, who pins nobody, has one of several
    figures by chance, and a median of three is any of them. trace: ns, the stretch that Run.trace is to have.
    """

    name: str
    scenario: Scenario
    figure: Figure
    wanted: float
    bound: Bound = "least"
    seeds: int = 9
    trace: Trace = (0, 0)
    ideal: float | None = None
    fair: float | None = None
    slack: float | None = None
    floor: float = 0

    def yard(self, default: float | None) -> float | None:
        """The figure that the ratio is to, where default's is this."""
        if self.ideal is not None:
            return self.ideal
        if default is None:
            return None
        return max(default if self.fair is None else min(default, self.fair), self.floor)

    def most(self, default: float | None) -> float | None:
        """The most that the figure may be, None: it has no bound."""
        if self.slack is None:
            return None
        return self.slack * max(one for one in (default, self.ideal, self.fair, 0) if one is not None)


def standard() -> list[Row]:
    """All of them, those with a scenario in common one after the other."""
    return [
        *_thin(),
        *_hogs(),
        *_groups(),
        *_unmarked(),
        *_ordinary(),
        *_woken(),
        *_sleepers(),
        *_room(),
        *_beside_wide(),
        *_helpless(),
        *_unmarked_later(),
        *_pinned(),
    ]


def slowest(number: int) -> Figure:
    """CPUs that the vCPU of guest `number` had that had least, of those that do its load."""
    return lambda run: run.guests[number]["vcpu_min_ns"] / 1e9 / run.seconds


def rounds(*numbers: int) -> Figure:
    """Rounds a second of these guests together."""
    return lambda run: sum(run.guests[number]["rounds"] for number in numbers) / run.seconds


def slowest_rounds(run: Run) -> float:
    """Rounds a second of the guest that got fewest."""
    return min(guest["rounds"] for guest in run.guests) / run.seconds


def share(name: str) -> Figure:
    """CPUs that the tasks of that name had, all together."""
    return lambda run: run.share(name)


def least(name: str) -> Figure:
    """CPUs that the one of these tasks had that had least."""
    return lambda run: min(float(task["share"]) for task in run.of(name))


def done(name: str) -> Figure:
    """Rounds a second of these tasks, with the tasks they forked."""
    return lambda run: sum(int(task["rounds"]) for task in run.of(name)) / run.seconds


def longest(name: str = "") -> Figure:
    """Milliseconds that one of these tasks, or of all, was runnable and had no CPU, at the worst."""
    return lambda run: max(int(t["longest_wait_ns"]) for t in (run.of(name) if name else run.tasks)) / 1e6


def woken(number: int, figure: str) -> Figure:
    """Microseconds from a wakeup of guest `number` to running, p50_us or p99_us; None: nobody was woken."""

    def read(run: Run) -> float | None:
        party = parties(run)[number]
        value: float = getattr(party, figure)
        return value if any(task["wakeups"] for task in run.of(party.name)) else None

    return read


def cores(threads: int) -> Figure:
    """Cores of which a thread runs something, on average over the stretch traced."""

    def read(run: Run) -> float | None:
        events = [
            (at, step, cpu // threads)
            for start, end, cpu, _ in run.trace
            for at, step in ((max(start, SHOWN[0]), 1), (min(end, SHOWN[1]), -1))
        ]
        busy: dict[int, int] = {}
        last, total = SHOWN[0], 0
        for at, step, core in sorted(events):
            total += (at - last) * sum(count > 0 for count in busy.values())
            last = at
            busy[core] = busy.get(core, 0) + step
        return total / (SHOWN[1] - SHOWN[0])

    return read


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' if count > 1 else ''}"


def _thin() -> list[Row]:
    """A guest of which one vCPU is busy has a CPU to itself while nobody else needs that one."""
    rows = []
    for width in (4, 8):
        for load, unit in (("barrier", "rounds/s"), ("spin", "CPUs of its slowest vCPU")):
            guests = (Guest(load, width, busy=1), Guest(load, width))
            scenario = Scenario(f"thin-{load}-{width}", Host(width, 1, width), guests, seconds=20)
            for number, who in enumerate((f"1 busy of {width}", f"{width} busy of {width}")):
                beside = (f"{width} of {width}", f"1 of {width}")[number]
                figure = rounds(number) if load == "barrier" else slowest(number)
                rows.append(Row(f"{load}: {who} beside {beside}, {unit}", scenario, figure, 0.90))
    return rows


def _hogs() -> list[Row]:
    """Ordinary tasks count by their weight, so many of low priority push no gang aside."""
    rows = []
    for count in (1, 4, 100, 1000):
        hogs = (Task("hog", count, nice=19),)
        scenario = Scenario(f"nice-{count}", FOUR, (Guest("spin", 4),), 30, tasks=hogs)
        name = f"a gang beside {_many(count, 'hog')} of nice 19, CPUs of its slowest vCPU"
        rows.append(Row(name, scenario, slowest(0), 0.95))
    return rows


def _groups() -> list[Row]:
    """Cgroups get the CPUs they are promised, beside one marked guest that keeps every CPU busy.

    Weights take ten minutes of host time: weight 1 beside 10000 has a slice of 3 ms every 30 s. The watchdog
    has a shorter limit than that, so a scheduler of BPF has to give smaller slices.
    """
    nested = (
        Group("p", 100), Group("p1", 1, "p"), Group("p100", 100, "p"),
        Group("q", 10000), Group("q100", 100, "q"), Group("q10000", 10000, "q"),
    )  # fmt: skip
    flat = (Group("w1", 1), Group("w100", 100), Group("w10000", 10000))
    idle = (Group("idle", idle=True), Group("busy"))
    limited = (Group("limited", cpus=0.25), Group("free"))
    return [
        *_of_groups("cpu.weight", flat, ("w1", "w100", "w10000"), 600),
        *_of_groups("cpu.weight, nested", nested, ("p1", "p100", "q100", "q10000"), 600),
        # an idle group weighs 3 where others weigh 1024: little, but not nothing
        *_of_groups("cpu.idle", idle, ("idle", "busy"), 300),
        *_of_groups("cpu.max 25 %", limited, ("limited", "free"), 60),
    ]


def _of_groups(what: str, groups: tuple[Group, ...], leaves: tuple[str, ...], seconds: float) -> list[Row]:
    """A hog bound to each CPU in each of `leaves`.

    Bound, because this model does not balance by weight: unbound, what default gives is up to the seed.
    """
    hogs = tuple(
        Task("hog", cpus=(cpu,), group=leaf, name=f"in-{leaf}") for leaf in leaves for cpu in range(FOUR.cpus)
    )
    scenario = Scenario(what, FOUR, (Guest("spin", 4),), seconds, tasks=hogs, groups=groups)
    return [
        Row(f"{what}: group {leaf}, CPUs", scenario, share(f"in-{leaf}"), 0.95, "within", seeds=3)
        for leaf in leaves
    ]


def _unmarked() -> list[Row]:
    """Guests that nobody marked are ordinary tasks. PLE is on, as KVM has it."""
    rows = []
    for load in ("barrier", "ipi", "sleep"):
        guests = tuple(Guest(load, 4, ple=True, marked=marked) for marked in (False, False, True, True))
        scenario = Scenario(f"unmarked-{load}", FOUR, guests, seconds=20)
        name = f"{load}: two unmarked guests beside two marked, rounds/s"
        rows.append(Row(name, scenario, rounds(0, 1), 0.95))
    return rows


def _ordinary() -> list[Row]:
    """Ordinary tasks among themselves: the gang scheduler runs them, too, whether a gang is busy or not."""
    two = Host(2, 1, 2)
    asleep, busy = Guest("spin", 2, busy=0), Guest("spin", 2)
    three = Scenario("three-hogs", two, (asleep,), 20, tasks=(Task("hog", 3),))
    # children begin in front of whoever waits: the old one may never run again
    old = Task("hog", cpus=(0,), name="old")
    shell = Task("chain", work_us=500, cpus=(0,), start_ms=1000, name="shell")
    forks = Scenario("forks", two, (asleep,), 20, tasks=(old, shell))
    short = Task("chain", work_us=1000, name="short")  # alone on a CPU, a thousand of them a second
    naps = Task("cycle", work_us=50, sleep_us=950, name="naps")
    rows = [
        Row("three hogs on two CPUs, a marked guest asleep, CPUs of the slowest", three, least("hog"), 0.95),
        Row("an old hog beside a fork chain, CPUs", forks, share("old"), 0.95),
        # it runs from tick to tick, and so may the chain: a wait of a tick is right
        Row(
            "an old hog beside a fork chain, longest wait ms",
            forks,
            longest("old"),
            1.1,
            "most",
            floor=bars.TICK_MS,
        ),
    ]
    for state, guest in (("asleep", asleep), ("busy", busy)):
        forked = Scenario(f"short-{state}", two, (guest,), 20, tasks=(short,))
        waking = Scenario(f"naps-{state}", two, (guest,), 20, tasks=(naps,))
        rows += [
            Row(f"short tasks, 1,000/s, a marked guest {state}, done/s", forked, done("short"), 0.95),
            Row(f"short wakeups, 1,000/s, a marked guest {state}, done/s", waking, done("naps"), 0.95),
        ]
    return rows


def _woken() -> list[Row]:
    """A turn is four slices long: who wakes into another's may wait for the end of it."""
    rows = []
    for load in ("sleep", "duty"):
        for gangs in (1, 2, 4, 8):
            guests = (Guest(load, 4), *(Guest("spin", 4),) * gangs)
            scenario = Scenario(f"woken-{load}-{gangs}", FOUR, guests, seconds=20)
            for figure, wanted in (("p50", 1.5), ("p99", 2.0)):
                name = f"{load}: woken beside {_many(gangs, 'busy gang')}, {figure} us"
                rows.append(Row(name, scenario, woken(0, f"{figure}_us"), wanted, "most"))
    return rows


def _sleepers() -> list[Row]:
    """Pairs that wake each other: relaxed gangs have to give others what halted members leave."""
    scenario = Scenario("sleepers", FOUR, (Guest("sleep", 4),) * 3, seconds=20)
    return [Row("sleep: three guests, relaxed, rounds/s of the slowest", scenario, slowest_rounds, 0.97)]


def _room() -> list[Row]:
    """vCPUs are put on cores of their own while there are any, and are put somewhere at all."""
    idle = Scenario("idle", Host(32, 2, 32), (Guest("spin", 2),) * 8, seconds=2)
    # Threads of a core do not slow each other down here, so cores are counted, not rounds. The default
    # scheduler forks without a look at siblings and finds 12 or 13, where the kernel finds all 16: hence 1.2.
    spread = Row("8 guests of 2 vCPUs on 16 idle cores, cores used", idle, cores(2), 1.20, trace=SHOWN)
    wide = Scenario("wide", Host(128, 2, 64), (Guest("barrier", 96),), seconds=5)
    return [
        spread,
        # the default scheduler has room for any guest that has no more vCPUs than the host CPUs
        Row("a guest of 96 vCPUs on two caches of 64 CPUs, rounds/s", wide, rounds(0), 0.95, seeds=1),
    ]


def _beside_wide() -> list[Row]:
    """Ordinary tasks whose share of the host is a whole CPU, beside guests that could use all of it."""
    rows = []
    for width in (2, 4, 8, 16):
        scenario = Scenario(
            f"hog-{width}", Host(width, 1, width), (Guest("spin", width),), 20, tasks=(Task(),)
        )
        rows.append(Row(f"a hog beside a guest of {width} vCPUs, CPUs", scenario, share("hog"), 0.90))
    eight = Host(8, 1, 8)
    bound = tuple(Task("hog", cpus=(cpu,), name="bound") for cpu in range(4))
    two = Scenario("bound-hogs", eight, (Guest("barrier", 8),) * 2, 20, tasks=bound)
    daemons = tuple(Task("cycle", work_us=500, sleep_us=9500, cpus=(cpu,), name="d") for cpu in range(8))
    each = Scenario("daemons", eight, (Guest("barrier", 8),) * 2, 20, tasks=daemons)
    return [
        *rows,
        Row("four bound hogs beside two guests of 8, CPUs", two, share("bound"), 0.90),
        Row("a daemon a CPU beside two guests of 8, done/s", each, done("d"), 0.95),
    ]


def _helpless() -> list[Row]:
    """Guests that nobody marked, whose vCPUs yield to each other, beside a marked one that sleeps."""
    rows = []
    for load in ("barrier", "ipi"):
        for hogs in (0, 1):
            guests = (*(Guest(load, 4, ple=True, marked=False),) * 2, Guest("spin", 4, busy=0))
            tasks = (Task(),) * hogs
            scenario = Scenario(f"helpless-{load}-{hogs}", FOUR, guests, 20, tasks=tasks)
            beside = "a marked one asleep" + (" and a hog" if hogs else "")
            rows.append(
                Row(f"{load}: two unmarked guests beside {beside}, rounds/s", scenario, rounds(0, 1), 0.90)
            )
            if hogs:
                rows.append(Row(f"{load}: the hog beside them, CPUs", scenario, share("hog"), 0.90))
    return rows


def _unmarked_later() -> list[Row]:
    """A guest that loses its mark while it runs, beside one that keeps it and a task that never sleeps."""
    guests = (Guest("spin", 4, unmark_ms=10_000), Guest("spin", 4))
    scenario = Scenario("unmarked-later", FOUR, guests, 20, tasks=(Task(),))
    beside = "beside a marked one and a hog"
    return [
        Row(
            f"a guest unmarked while it runs {beside}, slowest vCPU",
            scenario,
            slowest(0),
            0.90,
            ideal=0.375,
        ),
        Row("the marked one beside it, its slowest vCPU", scenario, slowest(1), 0.90, ideal=0.375),
        Row("the hog beside them, CPUs", scenario, share("hog"), 0.90, ideal=1.0),
        Row("all of them, longest wait ms", scenario, longest(), bars.WAIT, "most", floor=bars.TICK_MS),
    ]


def _pinned() -> list[Row]:
    """Guests whose operator pinned them, one of them strict: half of a CPU each."""
    guests = (
        Guest("spin", 1, mode="strict", pins=(2,), name="narrow"),
        Guest("spin", 4, weight=400, pins=(0, 1, 2, 3), name="wide"),
    )
    scenario = Scenario("pinned-strict", Host(4, 2, 4), guests, 20)
    return [
        Row("a strict vCPU, pinned, beside a pinned guest, CPUs", scenario, slowest(0), 0.85, ideal=0.5),
        Row("that guest, its slowest vCPU", scenario, slowest(1), 0.85, ideal=0.5),
    ]
