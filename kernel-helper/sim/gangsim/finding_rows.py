# SPDX-License-Identifier: Apache-2.0
"""Hosts that once broke a scheduler of ours, each a way of being unlike a gang: `HARM="--only findings"`.

Where default's figure is none to ask for, the bar is the share by max-min division, level by level.
"""

from __future__ import annotations

from gangsim import bars
from gangsim.harm_rows import FOUR, Figure, Row, done, least, longest, rounds, share, slowest_rounds
from gangsim.scenario import Group, Guest, Host, Scenario, Task

EIGHT = Host(8, 1, 8)
TWO = Host(2, 2, 2)
SEEDS = 3
WHOLE = 12_500  # rounds/s of a gang at barriers that has all of its CPUs for a quarter of the time


def standard() -> list[Row]:
    """All of them, those with a scenario in common one after the other."""
    rows = [*_late(), *_bound(), *_pinned(), *_kernel_threads(), *_sleepers(), *_caches(), *_limited()]
    return [*rows, *_leftovers(), *_builds(), *_limits(), *_brief(), *_gaps(), *_mixed()]


def poorest(*numbers: int) -> Figure:
    """CPUs of the guest that had least."""
    return lambda run: min(run.share(f"g{number}") for number in numbers)


def together(*names: str) -> Figure:
    """CPUs of all of these."""
    return lambda run: sum(run.share(name) for name in names)


def _row(
    name: str,
    scenario: Scenario,
    figure: Figure,
    wanted: float,
    ideal: float | None = None,
    most: bool = False,
) -> Row:
    return Row(name, scenario, figure, wanted, "most" if most else "least", SEEDS, ideal=ideal)


def _late() -> list[Row]:
    """A host that has room for everybody, then has not: who was alone for long must not owe for that."""
    rows = []
    for count in (16, 4):
        late = (Task("hog", count, start_ms=20000, name="late"),)
        scenario = Scenario(f"late-{count}", EIGHT, (Guest("spin", 2), Guest("spin", 6)), 40, tasks=late)
        rows += [
            _row(f"{count} hogs come after 20 s, CPUs", scenario, share("late"), 0.90),
            _row(f"{count} hogs come after 20 s, longest wait ms", scenario, longest(), 1.0, 400, most=True),
        ]
    daemons = (Task("cycle", 4, 2000, 8000, start_ms=40000, name="late"),)
    heavy = (Guest("spin", 4, weight=400), Guest("spin", 4))
    scenario = Scenario("late-daemons", EIGHT, heavy, 60, tasks=daemons)
    return [*rows, _row("daemons of 20 % come after 40 s, done/s", scenario, done("late"), 0.90)]


def _bound() -> list[Row]:
    """Bound tasks have the clock of their CPU, however fast the cache's is."""
    single = tuple(Task("hog", cpus=(cpu,), name=f"b{cpu}") for cpu in (0, 1, 2))
    last = (
        Task("hog", 2, cpus=(3,), name="b3"),
        Task("cycle", 1, 1000, 9000, cpus=(3,), start_ms=5000, name="late"),
    )
    uneven = Scenario("bound", FOUR, (), 30, tasks=(*single, *last))
    nice = (Task(cpus=(3,), name="n0"), Task(cpus=(3,), nice=5, name="n5"), Task("hog", 2, name="free"))
    weights = Scenario("bound-nice", FOUR, (Guest("spin", 4),), 30, tasks=nice)
    crowd = (Task("hog", 8, cpus=(0, 1), name="set"), Task("cycle", 1, 500, 4500, cpus=(0, 1), name="d"))
    brief = Task("cycle", 1, 50, 1000, cpus=(0,), name="brief")
    turns = Scenario("bound-brief", EIGHT, (Guest("spin", 8),) * 2, 10, tasks=(brief,))
    confined = Scenario("bound-set", EIGHT, (Guest("barrier", 8),), 20, tasks=crowd)
    some = (Task("hog", 4, cpus=tuple(range(6)), name="six"), Task("hog", 2, cpus=(0, 1), name="two"))
    parts = Scenario("bound-parts", EIGHT, (Guest("spin", 8),), 10, tasks=some)
    heavy = (Task("hog", 4, nice=-10, name="heavy"), Task("cycle", 1, 500, 9500, cpus=(2,), name="d"))
    behind = Scenario("bound-behind", EIGHT, (Guest("barrier", 8),), 10, tasks=heavy)
    heaviest = Guest("ipi", 4, weight=10000)
    passing = (heaviest, Guest("barrier", 2, weight=400, ple=True, marked=False, room=(0, 2)))
    sleeper = (Task("cycle", 1, 3000, 1000, cpus=(2,), name="d"),)
    ratchet = Scenario("bound-ratchet", FOUR, passing, 12, tasks=sleeper)
    return [
        _row("3 ms in 4 on a CPU that vCPUs pass which are owed time, CPUs", ratchet, share("d"), 0.85, 0.75),
        _row(
            "hogs on 6 of 8 CPUs and on two of these beside a guest, the two's CPUs",
            parts,
            share("two"),
            0.95,
            1.333,
        ),
        _row(
            "a daemon on one CPU beside 4 hogs of nice -10 and a gang, longest wait ms",
            behind,
            longest("d"),
            1.0,
            bars.TICK_MS,
            most=True,
        ),
        _row("bound hogs 1 1 1 2, a late daemon on the last CPU, done/s", uneven, done("late"), 0.85),
        _row("bound hogs 1 1 1 2, the last two's CPUs", uneven, share("b3"), 0.95),
        _row("bound hogs of nice 0 and 5 beside a gang, the first's CPUs", weights, share("n0"), 0.90, 0.6),
        _row(
            "bound hogs of nice 0 and 5 beside a gang, the second's CPUs", weights, share("n5"), 0.85, 0.197
        ),
        _row("a daemon bound to one of 8 CPUs beside two gangs of 8, done/s", turns, done("brief"), 0.95),
        _row("8 hogs on two of 8 CPUs beside a gang, slowest hog CPUs", confined, least("set"), 0.85),
        _row("8 hogs on two of 8 CPUs, a daemon there, done/s", confined, done("d"), 0.85),
    ]


def _kernel_threads() -> list[Row]:
    """Kernel threads of one CPU come first when they wake, not for ever."""
    daemon = Task("cycle", 1, 1000, 9000, cpus=(1,), name="d")
    busy = (Task("hog", 2, cpus=(1,), kthread=True, name="kt"), daemon)
    brief = (Task("cycle", 3, 500, 100, cpus=(1,), kthread=True, name="kt"), daemon)
    rows = []
    for name, tasks in (("two busy kernel threads", busy), ("three of 0.5 ms in 0.6", brief)):
        scenario = Scenario(name, FOUR, (Guest("spin", 4),), 20, tasks=tasks)
        rows.append(_row(f"{name} on one CPU, a daemon there, done/s", scenario, done("d"), 0.80))
    return rows


def _sleepers() -> list[Row]:
    """A group is one party, however many of its tasks sleep in turn."""
    guests = (*(Guest("spin", 8, busy=0, rest_work_us=300, rest_sleep_us=2700),) * 16, Guest("spin", 2))
    light = Scenario("light", EIGHT, guests, 10)
    crowd = (Task("cycle", 64, 500, 3500, name="d"),)
    daemons = Scenario("64 daemons", EIGHT, (Guest("spin", 4),) * 2, 10, tasks=crowd)
    two = (Task("cycle", 16, 200, 1000, group="a", name="s"), Task("hog", 2, group="b", name="h"))
    groups = Scenario("two-groups", Host(2, 1, 2), (), 10, tasks=two, groups=(Group("a"), Group("b")))
    return [
        _row("two busy vCPUs beside 16 guests of 8 at 10 %, CPUs", light, share("g16"), 0.85),
        _row("64 daemons of 12.5 % beside two gangs, gangs' CPUs", daemons, together("g0", "g1"), 0.90),
        _row("two hogs beside a group of 16 sleepers, CPUs", groups, share("h"), 0.90),
    ]


def _caches() -> list[Row]:
    """Several caches are one host: nobody is for ever in the full one."""
    two = Host(16, 1, 8)
    three = Scenario("three", two, (Guest("spin", 8),) * 3, 10)
    weights = Scenario("cache-weights", two, tuple(Guest("spin", 8, w) for w in (400, 400, 100, 100)), 10)
    mixed = (*(Guest("barrier", 8),) * 3, *(Guest("duty", 4),) * 16)
    four = Scenario("four caches", Host(32, 1, 8), mixed, 10)
    many = (*(Guest("barrier", 8),) * 8, *(Guest("duty", 4),) * 20)
    eight = Scenario("eight caches", Host(64, 1, 8), many, 6)
    fifteen = Scenario("fifteen", Host(32, 1, 4), (Guest("spin", 4),) * 15, 10)
    bound = (Task("hog", name="h", cpus=(1,)),)
    alone = Scenario("cpu-caches", Host(2, 1, 1), (Guest("barrier", 2),) * 2, 10, tasks=bound)
    hogs = (Task("hog", 16, group="x", name="h"),)
    ordinary = Scenario("cache-hogs", two, (Guest("spin", 8),) * 2, 10, tasks=hogs, groups=(Group("x"),))
    return [
        _row("a bound hog beside two guests of 2, each CPU a cache, CPUs", alone, share("h"), 0.90),
        _row("three guests of 8 on two caches of 8, least CPUs", three, poorest(0, 1, 2), 0.85, 5.33),
        _row("weights 400 400 100 100 on two caches, a heavy one's CPUs", weights, poorest(0, 1), 0.90, 6.4),
        _row(
            "3 barrier, 16 duty guests on 4 caches, a barrier's CPUs",
            four,
            poorest(0, 1, 2),
            0.85,
            1.684,
        ),
        _row(
            "8 barrier, 20 duty guests on 8 caches, a barrier's CPUs",
            eight,
            poorest(*range(8)),
            0.70,
            3.0,
        ),
        _row("15 guests of 4 on 8 caches of 4, least CPUs", fifteen, poorest(*range(15)), 0.85, 2.13),
        _row("16 hogs and two guests on two caches, slowest hog CPUs", ordinary, least("h"), 0.85, 0.5),
    ]


def _limited() -> list[Row]:
    """Tasks and guests that may have one cache of two, or a part of a cache: no queue is for other CPUs."""
    two, first = Host(16, 1, 8), tuple(range(8))
    hogs = (Task("hog", 16, name="h", cpus=first),)
    masked = Scenario("cache-mask", two, (Guest("spin", 2),), 20, tasks=hogs)
    guests = Scenario("cache-guests", two, tuple(Guest("barrier", 8, room=first) for _ in range(4)), 20)
    some = Scenario("part-guests", EIGHT, tuple(Guest("barrier", 4, room=first[2:]) for _ in range(3)), 20)
    reserved = Host(8, 1, 8, reserved=2)
    own = (Task("hog", 3, name="h", cpus=(0, 1)),)
    pair = Scenario("reserved", reserved, (Guest("barrier", 4),) * 2, 10, tasks=own)
    uneven = Scenario("uneven", Host(16, 1, 8, reserved=2), (Guest("barrier", 8),) * 4, 10)
    return [
        _row("16 hogs limited to one cache of two beside a guest, CPUs", masked, share("h"), 0.95),
        _row("4 gangs of 8 limited to one cache of two, rounds/s", guests, rounds(*range(4)), 0.95),
        _row("3 gangs of 4 limited to 6 CPUs of 8, least CPUs", some, poorest(0, 1, 2), 0.80, 2.0),
        _row("2 gangs of 4 on 6 CPUs, 2 reserved, rounds/s", pair, rounds(0, 1), 0.90, 50000),
        _row("3 hogs on 2 reserved CPUs beside them, CPUs", pair, share("h"), 0.95),
        _row("4 gangs of 8 on 6 and 8 CPUs, least CPUs", uneven, poorest(*range(4)), 0.80, 3.5),
    ]


def _leftovers() -> list[Row]:
    """A task can use a CPU at most, whatever it weighs: the rest is its siblings', before anybody else's."""
    tasks = (Task("hog", 2, nice=-20, group="a", name="hi"), Task("hog", 8, nice=19, group="a", name="lo"))
    nice = Scenario("nice", FOUR, (Guest("spin", 4),), 20, tasks=tasks, groups=(Group("a", 1000),))
    guests = (Guest("spin", 1, 10000, parent="s"), Guest("spin", 8, 100, parent="s"), Guest("spin", 8))
    one = Scenario("slice", EIGHT, guests, 10, groups=(Group("s"),))
    deep = tuple(Group(f"k{i}", 25 if i == 0 else 100, f"k{i - 1}" if i else "") for i in range(10))
    hogs = (Task("hog", 4, group="k9", name="k"), Task("hog", 4, name="s"))
    ten = Scenario("deep", FOUR, (Guest("spin", 4),), 10, tasks=hogs, groups=deep)
    return [
        _row("8 hogs of nice 19 with two of -20 in a heavy group, CPUs", nice, share("lo"), 0.85, 1.64),
        _row("weight 100 beside a one-vCPU 10000 in a slice, CPUs", one, share("g1"), 0.85, 3.0),
        _row("a slice of weight 25 whose tasks are ten deep, CPUs", ten, share("k"), 1.08, 0.44, most=True),
    ]


def _builds() -> list[Row]:
    """Processes that each do a little and fork the next."""
    rows = []
    for count, us in ((8, 3000), (8, 300), (1, 10000)):
        tasks = (Task("chain", count, us, name="c"),)
        scenario = Scenario(f"build-{us}", EIGHT, (Guest("barrier", 8),) * 2, 10, tasks=tasks)
        name = f"{count} chains of {us / 1000:g} ms beside two gangs, done/s"
        rows.append(_row(name, scenario, done("c"), 0.90))
    tiny = (Task("chain", 12, 20, name="c"), Task("hog", 3, nice=-20, name="h"))
    scenario = Scenario("tiny", FOUR, (), 10, tasks=tiny)
    return [
        *rows,
        _row("12 chains of 20 us beside three hogs of nice -20, done/s", scenario, done("c"), 0.80),
    ]


def _limits() -> list[Row]:
    """cpu.max of many groups, and of short periods."""
    guests = tuple(Guest("spin", 1, cpus=0.2) for _ in range(300))
    many = Scenario("cpu.max-300", Host(128, 1, 64), guests, 3)
    tasks = (Task(group="m", name="m"),)
    limit = (Group("m", cpus=0.5, period_us=10000),)
    short = Scenario("cpu.max-10", FOUR, (Guest("barrier", 4),) * 2, 10, tasks=tasks, groups=limit)
    return [
        _row(
            "300 guests of cpu.max 0.2, the most CPUs",
            many, lambda run: max(run.share(f"g{i}") for i in range(300)), 1.1, 0.2, most=True,
        ),
        _row("cpu.max of 5 ms every 10 beside two gangs, CPUs", short, share("m"), 0.95),
    ]  # fmt: skip


def _brief() -> list[Row]:
    """Brief tasks may interrupt turns; guests that are brief all the time must not end turns for good."""
    quarter = (Task("cycle", 1, 5000, 45000, name="q"),)
    cliff = Scenario("cliff", EIGHT, (Guest("barrier", 8),) * 8, 10, tasks=quarter)
    wide = Scenario("wide-ple", Host(16, 1, 8), (Guest("barrier", 16, ple=True, marked=False),) * 2, 5)
    guests = (Guest("barrier", 8), *(Guest("duty", 4, work_us=500, extra_us=500),) * 2)
    beside = Scenario("bursts", EIGHT, guests, 10)
    sixteen = Scenario("sixteen", FOUR, (Guest("barrier", 4),) * 16, 10)
    return [
        _row("5 ms every 50 beside 8 gangs, done/s", cliff, done("q"), 0.90),
        _row("two unmarked PLE guests of 16 on two caches of 8, rounds/s", wide, rounds(0, 1), 0.90),
        # of 25,000 a second that it makes alone: three times what default gives it at best
        _row(
            "a barrier guest of 8 beside two of 4 with 0.5 ms bursts, rounds/s", beside, rounds(0), 1.0, 1500
        ),
        _row(
            "two guests of 4 with 0.5 ms bursts beside a barrier, CPUs",
            beside,
            together("g1", "g2"),
            0.90,
        ),
        _row("16 gangs on 4 CPUs, longest wait ms", sixteen, longest(), bars.WAIT, most=True),
    ]


def _gaps() -> list[Row]:
    """A light gang fills the gaps that daemons leave: neither that nor its turns may cost them their CPUs."""
    daemons = (Task("cycle", 5, 500, 1000, name="d"),)
    wide = Guest("barrier", 15, marked=False)
    light = Scenario("gaps", Host(16, 1, 16), (wide, Guest("barrier", 6, weight=1)), 12, tasks=daemons)
    nested = (Group("x0", 1), Group("x1", 10000, "x0"))
    inside = Guest("barrier", 6, busy=5, ple=True, parent="x1")
    deep = Scenario("gaps-nested", Host(16, 1, 16), (wide, inside), 12, tasks=daemons, groups=nested)
    return [
        _row(
            "5 daemons of 33 % beside 15 vCPUs and a gang of weight 1, CPUs", light, share("d"), 0.95, 1.667
        ),
        _row("the same, the gang in a group of weight 1, CPUs", deep, share("d"), 0.95, 1.667),
    ]


def _pinned() -> list[Row]:
    """The turn of a gang whose vCPUs an operator pinned, or limited to a part of a cache, is whole, however
    many others wait for its CPUs."""
    low, high, wide = tuple(range(4)), tuple(range(4, 8)), tuple(range(8))
    ring = ((0, 1), (1, 2), (2, 3), (3, 0)) * 2
    free, pinned = Guest("barrier", 4), Guest("barrier", 4, pins=low)
    lower, upper = Guest("barrier", 4, room=low), Guest("barrier", 4, room=high)
    hosts = {
        "4 gangs of 4 pinned to the same CPUs": (FOUR, (pinned,) * 4),
        "3 gangs of 4 pinned beside one that is not": (FOUR, (*(pinned,) * 3, free)),
        "4 gangs of 8 pinned, two caches": (Host(8, 1, 4), (Guest("barrier", 8, pins=wide),) * 4),
        "8 gangs of 2 pinned to a ring": (FOUR, tuple(Guest("barrier", 2, pins=pins) for pins in ring)),
        "3 gangs of 4 limited to 4 CPUs of 8 beside 4 that are not": (EIGHT, (*(lower,) * 3, *(free,) * 4)),
        "two gangs of 4 limited to each half of 8 CPUs": (EIGHT, (lower, lower, upper, upper)),
    }
    scenarios = {name: Scenario(name, *host, 6) for name, host in hosts.items()}
    return [
        _row(f"{name}, slowest rounds/s", scenario, slowest_rounds, 0.70, WHOLE)
        for name, scenario in scenarios.items()
    ]


def _mixed() -> list[Row]:
    """A marked guest whose vCPUs sleep a little has its share beside unmarked ones with the same load."""
    rows = []
    for host, marked, sleep in ((TWO, 3, 300), (FOUR, 3, 300), (FOUR, 1, 300), (FOUR, 1, 3000)):
        guests = tuple(
            Guest(
                "duty", host.cpus, work_us=5000 * (1 + 0.07 * i), extra_us=sleep, ple=True, marked=i < marked
            )
            for i in range(4)
        )
        scenario = Scenario(f"mixed-{host.cpus}-{marked}-{sleep}", host, guests, 8)
        name = (
            f"{marked} of 4 guests of {host.cpus} marked, 5 ms, {sleep / 1000:g} asleep, CPUs of the poorest"
        )
        rows.append(_row(name, scenario, poorest(*range(marked)), 0.95, host.cpus / 4))
    return [*rows, *_threads()]


def _threads() -> list[Row]:
    """A marked guest with a thread of QEMU in its group that works for 0.4 ms at a time has its share."""
    rows = []
    groups = tuple(Group(f"s{i}") for i in range(4))
    for marked, work in ((3, 30_000), (1, 30_000), (1, 5000)):
        guests = tuple(
            Guest(
                "duty",
                2,
                work_us=work * (1 + 0.07 * i),
                extra_us=500,
                ple=True,
                marked=i < marked,
                parent=f"s{i}",
            )
            for i in range(4)
        )
        threads = tuple(Task("cycle", 1, 400, 4000, group=f"s{i}", name=f"e{i}") for i in range(marked))
        scenario = Scenario(f"thread-{marked}-{work}", TWO, guests, 8, tasks=threads, groups=groups)
        name = f"{marked} of 4 guests of 2 marked, {work // 1000} ms, a thread in its group, CPUs of both"
        rows.append(_row(name, scenario, together("g0", "e0"), 0.95, 0.5))
    return rows
