# SPDX-License-Identifier: Apache-2.0
"""Hosts of ordinary life, most of them of two sizes: `HARM="--only hosts"`.

The bar is default's figure or the ideal by max-min division, whichever is less, unless a row says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsim import bars, ideal
from gangsim.figures import parties
from gangsim.finding_rows import poorest, together
from gangsim.harm_rows import FOUR, Figure, Row, done, longest, rounds, share, woken
from gangsim.scenario import Group, Guest, Host, Scenario, Task

SEEDS, SECONDS = 5, 10
SLACK = 1.15
EIGHT, TWICE = Host(8, 2, 8), Host(16, 2, 8)
B4, B8 = Guest("barrier", 4), Guest("barrier", 8)


def standard() -> list[Row]:
    """All of them, those with a scenario in common one after the other."""
    rows = [*_crowd(), *_bound(), *_web(), *_build(), *_caches(), *_cgroups(), *_both()]
    rows += [*_light(), *_batch(), *_system_threads(), *_naps(), *_bursts(), *_io_threads(), *_weightless()]
    return [*rows, *_half(), *_kernel_threads(), *_pods(), *_cpusets(), *_nodes()]


def tail(name: str) -> Figure:
    """Microseconds from a wakeup to running, p99 of the worst of these tasks."""
    return lambda run: max(int(task["latency_p99_ns"]) for task in run.of(name)) / 1e3


def tails(*numbers: int) -> Figure:
    """Microseconds from a wakeup to running, p99 of the worst of these guests."""
    return lambda run: max(parties(run)[number].p99_us for number in numbers)


def least_done(*names: str) -> Figure:
    """Rounds a second of those of these tasks that did fewest."""
    return lambda run: min(sum(int(task["rounds"]) for task in run.of(name)) for name in names) / run.seconds


def _host(name: str, host: Host, *parts: Guest | Task | Group, seconds: float = SECONDS) -> Scenario:
    guests = tuple(part for part in parts if isinstance(part, Guest))
    tasks = tuple(part for part in parts if isinstance(part, Task))
    groups = tuple(part for part in parts if isinstance(part, Group))
    return Scenario(name, host, guests, seconds, tasks=tasks, groups=groups)


def _as(name: str, scenario: Scenario, figure: Figure, wanted: float, seeds: int = SEEDS) -> Row:
    """At least this part of default's figure."""
    return Row(name, scenario, figure, wanted, seeds=seeds)


def _most(name: str, scenario: Scenario, figure: Figure, wanted: float, floor: float = 0) -> Row:
    """At most this multiple of default's figure."""
    return Row(name, scenario, figure, wanted, "most", SEEDS, floor=floor)


def _ideal(
    name: str, scenario: Scenario, figure: Figure, wanted: float, of: float, slack: float | None = None
) -> Row:
    """At least this part of an ideal."""
    return Row(name, scenario, figure, wanted, seeds=SEEDS, ideal=of, slack=slack)


def _fair(
    name: str,
    scenario: Scenario,
    wanted: float,
    *names: str,
    slack: float = SLACK,
    figure: Figure | None = None,
) -> Row:
    """CPUs of these parties, or another figure in CPUs, of default's or what they are due: the lesser."""
    due = ideal.due(scenario)
    return Row(
        name, scenario, figure or together(*names), wanted, seeds=SEEDS,
        fair=sum(due[one] for one in names), slack=slack,
    )  # fmt: skip


# ---- hosts made by hand, each unlike a gang in a way of its own --------------------------------------------


def _crowd() -> list[Row]:
    """A host that is not full for a while, then is: the first to come owe, and are owed, nothing for that."""
    few = (Guest("spin", 2), Guest("spin", 6))
    crowd = _host("crowd", EIGHT, *few, Group("n"), Task("hog", 16, group="n", start_ms=10_000), seconds=20)
    uneven = (Guest("barrier", 4, weight=400), Guest("barrier", 4, weight=100))
    drift = _host("drift", EIGHT, *uneven, Task("hog", 8, start_ms=300_000), seconds=330)
    late = _host("daemons", EIGHT, *few, Task("cycle", 4, 200, 800, start_ms=20_000, name="late"), seconds=40)
    hogs = Row(
        "16 hogs after 10 s beside guests of 2 and 6 on 8 CPUs, CPUs", crowd, share("hog"), 0.9, seeds=SEEDS,
        fair=ideal.shares(crowd)["hog"] / 2, slack=SLACK,
    )  # fmt: skip
    return [
        hogs,
        _most(
            "8 hogs after 300 s, guests of weight 400 and 100, longest wait ms",
            drift,
            longest("hog"),
            3,
            30,
        ),
        _ideal("4 daemons of 20 % after 20 s, guests of 2 and 6, done/s", late, done("late"), 0.9, 2000),
    ]


def _bound() -> list[Row]:
    """CPUs are not equally full where tasks are bound, and a bound task cannot go elsewhere."""
    one = Task("cycle", 1, 200, 9800, cpus=(0,), name="d")
    spinning = Task("hog", 2, cpus=(0,), kthread=True, name="kworker")
    working = Task("cycle", 3, 500, 100, cpus=(0,), kthread=True, name="kworker")
    pollers = (*(Task("hog", cpus=(cpu,), name=f"poll{cpu}") for cpu in range(3)), Task("hog", 2, cpus=(3,)))
    late = Task("cycle", 1, 200, 9800, cpus=(3,), start_ms=20_000, name="late")
    each = tuple(Task("cycle", 1, 200, 9800, cpus=(cpu,), name=f"d{cpu}") for cpu in range(4))
    asleep = Guest("spin", 4, busy=0)
    names = [one.name for one in each]
    return [
        _as("a daemon on the CPU of two busy kernel threads beside a gang, done/s",
            _host("kworkers-spin", FOUR, B4, spinning, one, seconds=30), done("d"), 0.8),
        _as("a daemon on the CPU of three of 0.5 ms in 0.6 beside a gang, done/s",
            _host("kworkers", FOUR, B4, working, one, seconds=30), done("d"), 0.8),
        _as("a daemon after 20 s on the one CPU of 4 that has two bound hogs, done/s",
            _host("bound-late", FOUR, asleep, *pollers, late, seconds=60), done("late"), 0.8),
        _as("a daemon on each of these CPUs from the start, done/s of the least",
            _host("bound-each", FOUR, asleep, *pollers, *each, seconds=60), least_done(*names), 0.8),
        *(_as(f"a daemon on a CPU of hogs of weight 1 beside a gang of weight 1000, {host.cpus} CPUs, done/s",
              _beside_light(host), done("d"), 0.9) for host in (FOUR, EIGHT)),
    ]  # fmt: skip


def _beside_light(host: Host) -> Scenario:
    """Hogs that may have some CPUs, and hardly any time there: they owe much, and may not share it out."""
    light, limit = Group("x", 1, cpus=0.5), Group("y", 1, "x")
    hogs = Task("hog", 4, nice=-20, cpus=(0, 1, 2), group="y", name="h")
    daemon = Task("cycle", 1, 50, 10_000, cpus=(1,), name="d")
    gang = Guest("spin", host.cpus, weight=1000)
    return _host(f"light-{host.cpus}", host, gang, light, limit, Task("hog", 4, group="x"), hogs, daemon)


def _web() -> Iterator[Row]:
    """A group of many that sleep has the weight of one group, however few of them are awake."""
    for host, busy in ((FOUR, 1), (EIGHT, 2), (Host(16, 1, 16), 4)):
        web = Guest("duty", host.cpus, work_us=200, extra_us=1800)
        thin = _host(f"web-{host.cpus}", host, Guest("spin", busy, name="thin"), *(web,) * 16)
        name = f"a guest of {busy} busy among 16 of {host.cpus} vCPUs of 10 % on {host.cpus} CPUs, CPUs"
        yield _fair(name, thin, 0.85, "thin", slack=1.5)
    for host in (FOUR, EIGHT):
        gangs = (Guest("barrier", host.cpus),) * 2
        daemons = Task("cycle", 8 * host.cpus, 500, 3500, name="pool")
        pool = _host(f"pool-{host.cpus}", host, *gangs, daemons, seconds=20)
        name = f"two gangs of {host.cpus} beside {daemons.count} daemons of 12.5 %, CPUs"
        yield _fair(name, pool, 0.85, "g0", "g1")


def _build() -> Iterator[Row]:
    """make -j in system.slice: a process a job, beside gangs that are as wide as the host."""
    for work in (3000, 300):
        build = _host(f"build-{work}", EIGHT, B8, B8, Task("chain", 8, work, name="cc"), seconds=20)
        name = f"a build of 8 jobs of {work / 1000:g} ms in turn beside two gangs of 8, CPUs"
        yield _fair(name, build, 0.8, "cc")
    script = _host("script", EIGHT, B8, B8, Task("chain", 1, 10_000, name="sh"), seconds=20)
    yield _as("a script of processes of 10 ms beside two gangs of 8, CPUs", script, share("sh"), 0.9)
    request = _host("request", FOUR, *(B4,) * 8, Task("cycle", 1, 5000, 45_000, name="ui"), seconds=60)
    yield _as("requests of 5 ms, 45 ms apart, beside 8 gangs of 4, done/s", request, done("ui"), 0.9)


def _caches() -> list[Row]:
    """Guests do not divide evenly among caches."""
    three = _host("three", TWICE, *(Guest("spin", 8),) * 3, seconds=20)
    mixed = (*(Guest("spin", 8),) * 5, *(Guest("spin", 6),) * 6, *(Guest("spin", 2),) * 4)
    many = _host("many", Host(64, 2, 8), *mixed)
    wide = _host("wide", TWICE, *(Guest("barrier", 16, ple=True, marked=False),) * 2, seconds=2)
    return [
        _ideal("three guests of 8, two caches of 8 in cores, least CPUs", three, poorest(0, 1, 2), 0.8,
               ideal.shares(three)["g0"]),
        _fair("15 guests of 8, 6 and 2 on 8 caches of 8, CPUs of the least of 8", many, 0.8, "g0",
              figure=poorest(*range(5))),
        _as("two unmarked guests of 16, PLE, on two caches of 8, rounds/s", wide, rounds(0, 1), 0.9),
    ]  # fmt: skip


def _cgroups() -> list[Row]:
    """cpu.weight, cpu.max and nice, in shapes that hosts have."""
    limits = (Guest("spin", 1, cpus=0.2, marked=False, name="last" if n == 299 else "") for n in range(300))
    limited = _host("limits", Host(128, 2, 64), *limits, seconds=3)
    nice = (Task("hog", 2, nice=-20, name="hi"), Task("hog", 8, nice=19, name="lo"))
    system = _host("nice", EIGHT, B4, B4, *nice, seconds=20)
    slices = (Group("gold", 100, "machine"), Group("iron", 100, "machine"))
    rich = (Guest("spin", 1, 10000, parent="gold"), Guest("spin", 4, parent="gold"))
    gold = _host("gold", EIGHT, *rich, Guest("spin", 8, parent="iron"), *slices, seconds=20)
    short = Group("q", cpus=0.5, period_us=10_000)
    rows = [
        Row("300 guests of cpu.max 0.2 on 128 CPUs, the last's CPUs", limited, share("last"), 1.1, "most",
            SEEDS, ideal=0.2),
        _ideal("8 hogs of nice 19 with two of -20 in system.slice, CPUs", system, share("lo"), 0.4,
               ideal.shares(system)["lo"], SLACK),
        _fair("a guest of 4, weight 100, in the slice of one of 1 of 10000, CPUs", gold, 0.8, "g1"),
    ]  # fmt: skip
    for host in (FOUR, EIGHT, TWICE):
        gangs = (Guest("barrier", min(host.cpus, host.llc_cpus)),) * (2 * host.cpus // host.llc_cpus)
        period = _host(f"period-{host.cpus}", host, *gangs, Task("hog", 4, group="q"), short, seconds=20)
        name = f"cpu.max of 5 ms every 10 for 4 hogs beside gangs on {host.cpus} CPUs, CPUs"
        rows.append(_fair(name, period, 0.95, "hog"))
    return rows


def _both() -> list[Row]:
    """Fair to others and yet a gang: rounds count against those of a guest's share in step."""
    duty = Guest("duty", 4, work_us=500, extra_us=500)
    served = _host("served", EIGHT, B8, duty, duty, seconds=20)
    ticks = (Guest("barrier", 8, busy=6, rest_work_us=50, rest_sleep_us=4000),) * 3
    naps = _host("ticks", EIGHT, *ticks, seconds=20)
    return [
        _as("two guests of 4, 0.5 ms in 1, one of 8 at barriers, rounds/s", served, rounds(1, 2), 0.95),
        # a sixteenth of the host's time is 3,125/s; default gives the others two thirds of what they want
        _ideal("the one at barriers, rounds/s", served, rounds(0), 0.05, _in_step(served, 0)),
        _ideal("three guests of 8, 6 at barriers, 2 with timer ticks, rounds/s", naps, rounds(0, 1, 2), 0.5,
               _in_step(naps, 0, 1, 2)),
    ]  # fmt: skip


def _in_step(scenario: Scenario, *numbers: int) -> float:
    """Rounds a second of these guests, if all their vCPUs run at once for the share of each."""
    shares = ideal.shares(scenario)
    return sum(ideal.rounds(scenario, number, shares[f"g{number}"]) for number in numbers)


# ---- tasks that are light, brief, or naps ------------------------------------------------------------------


def _light() -> Iterator[Row]:
    """Light tasks in a crowd: 24 and more runnable ones a CPU, few of which are heavy."""
    for cpus, plain, count, nice in ((2, 3, 60, 10), (2, 3, 100, 15), (8, 12, 240, 10), (8, 12, 400, 15)):
        tasks = (Task("hog", plain, name="plain"), Task("hog", count, nice=nice, name="light"))
        host = Host(cpus, 1, cpus)
        scenario = _host(f"light-{cpus}-{nice}", host, Guest("spin", cpus), *tasks, seconds=20)
        who = f"{count} hogs of nice {nice}, {plain} plain ones, a gang on {cpus} CPUs"
        yield _fair(f"{who}, light CPUs", scenario, 0.95, "light")
        yield _fair(f"{who}, CPUs of all hogs", scenario, 0.95, "plain", "light")
        yield _most(f"{who}, longest wait ms", scenario, longest(), bars.WAIT, bars.TICK_MS)


def _batch() -> Iterator[Row]:
    """Brief tasks beside a batch in cpu.idle, of which nothing may be in the way."""
    for host, width in ((Host(2, 1, 2), 2), (EIGHT, 4)):
        batch = Task("hog", 8 * host.cpus, group="b", name="batch")
        brief = Task("cycle", host.cpus // 2, 30, 970, name="brief")
        parts = (Guest("barrier", width), batch, brief, Group("b", idle=True))
        scenario = _host(f"batch-{host.cpus}", host, *parts)
        name = f"{brief.count} of 30 us/ms beside {batch.count} hogs in cpu.idle and a gang of {width}"
        yield _as(f"{name}, done/s", scenario, done("brief"), 0.98)
        yield _most(f"{name}, p99 us", scenario, tail("brief"), 1.0, 20)
    pairs = (Guest("sleep", 8, work_us=50) for _ in range(8))
    cyclic = _host("cyclic", Host(24, 2, 12), *pairs, Task("cycle", 24, 5, 995, name="cyclic"), seconds=3)
    yield _most("24 of 5 us/ms beside 8 gangs in pairs of 50 us, p99 us", cyclic, tail("cyclic"), 2.0, 20)


def _system_threads() -> Iterator[Row]:
    """vhost threads in system.slice, beside two gangs as wide as the host."""
    for host in (FOUR, EIGHT):
        gangs = (Guest("barrier", host.cpus),) * 2
        vhost = Task("cycle", 4, 20, 180, name="vhost")
        scenario = _host(f"vhost-{host.cpus}", host, *gangs, vhost)
        who = f"4 vhost threads, 5,000/s, beside two gangs of {host.cpus}"
        yield _as(f"{who}, done/s", scenario, done("vhost"), 0.95)
        yield _ideal(f"{who}, the gangs' rounds/s", scenario, rounds(0, 1), 0.5, _in_step(scenario, 0, 1))


def _naps() -> Iterator[Row]:
    """A guest that naps, in a machine.slice that uses up its part."""
    nap = Guest("duty", 1, work_us=400, extra_us=100)
    brief = Guest("duty", 1, work_us=150, extra_us=30)
    for cpus in (4, 8):
        scenario = _host(f"naps-{cpus}", Host(cpus, 1, cpus), nap, *(Guest("barrier", cpus),) * 3)
        yield _fair(
            f"a vCPU that naps 0.1 ms in 0.5 beside three gangs of {cpus}, CPUs", scenario, 0.85, "g0"
        )
    theft = _host("theft", Host(2, 1, 2), brief, *(Guest("spin", 2),) * 2)
    yield _fair("a vCPU that naps 30 us in 180 beside two gangs of 2, CPUs", theft, 0.85, "g0")
    unmarked = Guest("duty", 1, work_us=150, extra_us=30, marked=False)
    others = (Guest("spin", 2, marked=False),) * 2
    plain = _host("theft-unmarked", Host(2, 1, 2), unmarked, *others, Guest("spin", 2, busy=0))
    yield _fair("the same, unmarked as its neighbours, a marked guest asleep, CPUs", plain, 0.85, "g0")


def _bursts() -> Iterator[Row]:
    """Interactive guests beside a build, and beside a wide one."""
    game = Guest("duty", 6, 1000, work_us=5000, extra_us=3300)
    build = (Task("chain", 24, 50_000, name="cc"), Task("cycle", 2, 200, 2000, name="io"))
    gaming = _host("gaming", Host(12, 2, 12), game, *build)
    yield _as("a guest of 6, weight 1000, beside 24 chains on 12 CPUs, rounds/s", gaming, rounds(0), 0.95)
    yield _most("that guest, p99 us", gaming, woken(0, "p99_us"), 1.2, 20)
    wide = Guest("barrier", 16, busy=2, rest_work_us=50, rest_sleep_us=5000)
    small = Guest("duty", 1, work_us=3000, extra_us=1500)
    mixed = _host("mixed", Host(16, 2, 16), wide, *(small,) * 20)
    yield _most("20 guests of one vCPU beside one of 16, p99 us", mixed, tails(*range(1, 21)), 1.2, 20)
    yield _most("all of those guests, longest wait ms", mixed, longest(), bars.WAIT, bars.TICK_MS)


# ---- I/O threads -------------------------------------------------------------------------------------------


def _io_threads() -> Iterator[Row]:
    """An I/O thread in the scope of a marked guest is served as by default, and the scope has its share."""
    four = ((FOUR, 4, (4,)), (FOUR, 4, (3,)), (FOUR, 3, (3,)))
    for host, width, beside in (*four, (Host(16, 1, 4), 4, (4,) * 7), (Host(16, 1, 4), 3, (3,) * 7)):
        for work, sleep in ((100, 900), (40, 160), (10, 40)):
            for count in (1, 4):
                others = (Guest("barrier", other) for other in beside)
                guests = (Guest("barrier", width, parent="v"), *others)
                thread = Task("cycle", count, work, sleep, group="v", name="io")
                name = f"io-{host.cpus}-{width}-{beside[0]}-{work}-{count}"
                scenario = _host(name, host, *guests, thread, Group("v"))
                many = f"{count} I/O thread{'s' if count > 1 else ''} of {work}/{sleep} us"
                who = f"{many} in a guest of {width} beside {len(beside)} of {beside[0]}, {host.cpus} CPUs"
                yield _as(f"{who}, done/s", scenario, done("io"), 0.95)
                yield _most(f"{who}, p99 us", scenario, tail("io"), 1.2, 20)
                yield _fair(f"{who}, both's CPUs", scenario, 0.9, "g0", "io")


# ---- the rest of the public reports ------------------------------------------------------------------------


def _weightless() -> Iterator[Row]:
    """A marked guest of next to no weight takes nothing from an interactive one."""
    for light, what in ((Guest("spin", 8, idle=True), "in cpu.idle"), (Guest("spin", 8, 1), "of weight 1")):
        for width in (4, 8):
            interactive = Guest("duty", width, work_us=1000, extra_us=1000)
            scenario = _host(f"weightless {what} {width}", EIGHT, light, interactive)
            who = f"a guest of {width}, 1 ms in 2, beside one of 8 {what}"
            yield _fair(f"{who}, CPUs", scenario, 0.95, "g1")
            yield Row(f"{who}, p99 us", scenario, woken(1, "p99_us"), 1.0, "most", SEEDS, ideal=1000)


def _half() -> Iterator[Row]:
    """A task that sleeps half of its time beside a hog on its CPU."""
    for cpus in (1, 2):
        for ms in (0.2, 0.5, 1):
            bound = (0,) if cpus > 1 else None
            half = Task("cycle", 1, 1000 * ms, 1000 * ms if ms > 0.2 else 400, cpus=bound, name="half")
            hog = Task("hog", cpus=bound)
            parts = (Guest("spin", cpus, busy=0), hog, half)
            scenario = _host(f"half-{cpus}-{ms}", Host(cpus, 1, cpus), *parts)
            where = "on one CPU" if cpus == 1 else "bound to one of two CPUs"
            # both in one slice of one CPU: the division of one CPU is the ideal of the two, bound ones too
            due = ideal.due(
                _host("one", Host(1, 1, 1), Task(), Task("cycle", 1, half.work_us, half.sleep_us))
            )
            name = f"a task of {half.work_us:g}/{half.sleep_us:g} us and a hog {where}, its CPUs"
            yield Row(name, scenario, share("half"), 0.9, seeds=SEEDS, fair=due["cycle"], slack=1.5)


def _kernel_threads() -> Iterator[Row]:
    """A kernel thread that wakes for the first time when gangs have been there for long."""
    for host in (FOUR, Host(12, 2, 12)):
        width = host.cpus
        threads = (
            Task("cycle", 1, 200, 20_000, cpus=(cpu,), kthread=True, name="kw", start_ms=2000)
            for cpu in range(width)
        )
        scenario = _host(f"kw-{width}", host, *(Guest("barrier", width),) * 3, *threads)
        name = f"a kernel thread a CPU after 2 s beside three gangs of {width}, longest wait ms"
        yield _most(name, scenario, longest("kw"), bars.WAIT, bars.TICK_MS)


def _pods() -> Iterator[Row]:
    """Pods just below their cpu.max, beside two gangs."""
    for host, count in ((FOUR, 8), (EIGHT, 16)):
        names = [f"p{pod}" for pod in range(count)]
        groups = (Group(name, cpus=0.3) for name in names)
        threads = (Task("cycle", 4, 5000, 60_000, group=name, name=name) for name in names)
        gangs = (Guest("barrier", host.cpus), Guest("spin", host.cpus))
        scenario = _host(f"pods-{host.cpus}", host, *gangs, *threads, *groups)
        name = f"{count} pods of 4 threads of 5/65 ms, cpu.max 0.3, beside two gangs of {host.cpus}, CPUs"
        # a quota is no rate: awake, a thread may have more than its part of it
        wanted = sum(ideal.shares(scenario)[pod] for pod in names)
        yield Row(name, scenario, together(*names), 0.95, seeds=SEEDS, fair=wanted, slack=SLACK)


def _cpusets() -> Iterator[Row]:
    """Containers whose cpusets overlap: the one in the middle has its part."""
    for host in (Host(12, 2, 12), Host(24, 2, 24)):
        half = host.cpus // 2
        for gang in (Guest("spin", 4, busy=0), Guest("barrier", host.cpus)):
            sets = [tuple(range(first, first + half)) for first in (0, half // 2, half)]
            hogs = (
                Task("hog", half, cpus=cpus, name=f"c{at}", group=f"c{at}") for at, cpus in enumerate(sets)
            )
            groups = (Group(f"c{at}") for at in range(3))
            scenario = _host(f"cpusets-{host.cpus}-{gang.load}", host, gang, *hogs, *groups)
            beside = "a sleeping gang" if gang.busy == 0 else f"a gang of {host.cpus}"
            name = f"{half} hogs on the middle {half} of {host.cpus} CPUs, 2 such sets beside, {beside}, CPUs"
            yield _fair(name, scenario, 0.9, "c1", slack=1.3)


def _nodes() -> Iterator[Row]:
    """A guest that is bound to a node wider than a cache, beside free ones and a busy other node."""
    for host in (Host(16, 1, 4), Host(32, 2, 8)):
        half, width = host.cpus // 2, host.llc_cpus
        guests = (Guest("barrier", half, room=tuple(range(half))), *(Guest("barrier", width),) * 3)
        hogs = Task("hog", width, cpus=tuple(range(half, host.cpus)))
        scenario = _host(f"nodes-{host.cpus}", host, *guests, hogs)
        who = f"a guest of {half} on half of the {host.cpus // width} caches of {width}"
        yield _fair(f"{who}, CPUs", scenario, 0.85, "g0", slack=1.3)
        yield _most(f"{who}, the host's longest wait ms", scenario, longest(), bars.WAIT, bars.TICK_MS)
