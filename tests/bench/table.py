# SPDX-License-Identifier: Apache-2.0
"""The result as people read it: tables of what was measured, of what was wanted beside it. Pure.

A table is asked for a terminal or for a page, which has more digits and names each figure's interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from bench.grid import Table
from bench.records import Cell, Event, Gain, Key, Overhead, Result, Verdict
from bench.result import Placed, key_of, medians
from bench.stats import Ratio
from bench.tile import page as tile
from bench.variants import ADAPTIVE, BASELINES, NAMES
from lab.observe.figures import number

Row = list[str]
OPS = ("select_cpu", "enqueue", "dispatch", "running", "stopping", "tick")
AGAINST = ("load", "PLE", "n", "variant", "over pinned", "over the best", "over default", "over alone")


def lines(document: Result) -> Iterator[str]:
    """Everything that is printed at the end."""
    for make in (ratios, cells, pooled, work, ops, events, adaptive, shares, noise, judged):
        found = make(document)
        if found.rows:
            yield from (*found.text(), "")
    yield from tile.lines(document)
    yield from notes(document)


def page(document: Result) -> Iterator[str]:
    """The part of docs/benchmarks.md on one result."""
    yield from judged(document, page=True).markdown()
    for note in warnings(document):
        yield from (f"{note}.", "")
    for make in (ratios, cells, ops, events, shares, noise):
        found = make(document, page=True)
        if found.rows:
            yield from found.markdown()


def ratios(document: Result, page: bool = False) -> Table:
    """Return the gangs over each baseline."""
    found = document.ratios
    rows = [against(ratio) for ratio in (found if page else sorted(found, key=_order))]
    title = "A gang over each baseline, median of the rounds and its 95 % interval:"
    if not page:
        title = "a gang over baselines, median of the rounds and its 95 % interval; best of "
        title += ", ".join(BASELINES)
    return Table(AGAINST, rows, title)


def against(ratio: Gain) -> Row:
    """A gang variant of a cell over each baseline, in the columns AGAINST."""
    found = [ratio.of_pinned, ratio.of_best, ratio.of_default, ratio.of_limit]
    return [*_place(key_of(ratio)), ratio.variant, *map(estimate, found)]


def estimate(found: Ratio | None) -> str:
    """A ratio and its interval; a dash where it is not known."""
    if found is None or found.ratio is None:
        return "-"
    interval = "" if found.low is None else f", {found.low:.2f} to {found.high:.2f}"
    return f"{found.ratio:.2f}{interval}"


def _order(found: Placed) -> tuple[bool, str, int]:
    return found.ple, found.load, found.guests


def _place(key: Key) -> Row:
    return [key[0], "on" if key[1] else "off", str(key[2])]


def cells(document: Result, page: bool = False) -> Table:
    """Iterations a second of all guests together; in a terminal also the limit and the whole turns."""
    found: dict[Key, dict[str, Cell]] = {}
    for cell in document.cells if page else sorted(document.cells, key=_order):
        found.setdefault(key_of(cell), {})[cell.variant] = cell
    failed = {key: str(sum(cell.failed for cell in its.values())) for key, its in found.items()}
    if page:
        names = list(dict.fromkeys(cell.variant for cell in document.cells))
        rows = [[*_place(key), *(_rate(its.get(name)) for name in names), failed[key]]
                for key, its in sorted(found.items())]  # fmt: skip
        title = "Iterations a second of all guests together, medians, and (most - least) / median:"
        return Table(["load", "PLE", "guests", *names, "failed"], rows, title)
    rows = []
    for key, its in found.items():
        rates, relaxed = medians(document, key), its.get("relaxed")
        whole = _share(relaxed.whole_share if relaxed else None)
        count = str(sum(len(cell.rates) for cell in its.values()))
        figures = [number(rates.get(name)) for name in (*NAMES, "alone")]
        rows.append([*_place(key), *figures, whole, count, failed[key]])
    heads = ["load", "PLE", "n", *NAMES, "alone", "whole", "rounds", "failed"]
    return Table(heads, rows, "iterations/s of all guests, medians")


def _rate(cell: Cell | None) -> str:
    if cell is None or cell.median is None:
        return "-"
    return f"{cell.median:,.0f} ({cell.spread:.0%})" if cell.spread is not None else "0"


def pooled(document: Result) -> Table:
    """The gang against each baseline, a line a load."""
    found: dict[str, dict[str, str]] = {}
    for row in document.pooled:
        figure = f"{_times(row.ratio)}{_interval(row)} ({row.rounds})"
        found.setdefault(row.load, {})[row.baseline] = figure
    rows = [[load, *(its.get(name, "-") for name in BASELINES)] for load, its in found.items()]
    title = "gang against each baseline, all rounds of a load with 2 guests and more; 95 % by cells"
    return Table(["load", *BASELINES], rows, title)


def _interval(row: Ratio | Verdict) -> str:
    return "" if row.low is None else f" {row.low:.2f} to {row.high:.2f}"


def work(document: Result) -> Table:
    """Return the times of ordinary work under each condition."""
    overhead = document.overhead or Overhead()
    names = overhead.conditions
    rows = [[its, *(number(found[name]) for name in names)] for its, found in overhead.medians.items()]
    return Table(["work", *names], rows, "ordinary work, medians (s; s; us, p99)")


def ops(document: Result, page: bool = False) -> Table:
    """Return the time of each op under each condition, and of all ops of a pipe's round trip.

    A document of an earlier format has none.
    """
    overhead = document.overhead or Overhead()
    found, ours, unit = overhead.ops, overhead.events, document.origin.instruction_ns
    if not found:
        return Table([], [])

    def cell(name: str, op: str) -> str:
        whole, part = found[name].ops.get(op), ours.get(name, {}).get(f"gang_{op}")
        if whole is None:
            return "-"
        return f"{whole.ns / (unit or 1):,.0f}" + (f" ({part.ns / (unit or 1):,.0f})" if part else "")

    rows = [[op, *(cell(name, op) for name in found)] for op in OPS]
    trips = [f"{each.round_trip_ns / (unit or 1):,.0f}" for each in found.values()]
    rows.append(["a pipe's round trip", *trips])
    counted = "Instructions" if unit else "Nanoseconds"
    title = f"{counted} an op of the scheduling class takes while hackbench runs (of these our program):"
    return Table(["op", *found], rows, title)


def events(document: Result, page: bool = False) -> Table:
    """The BPF programs' run time, as the kernel counts it."""
    found = (document.overhead or Overhead()).events
    names = sorted({name for its in found.values() for name in its})
    rows = [[f"`{name}`" if page else name, *(_event(its.get(name)) for its in found.values())]
            for name in names]  # fmt: skip
    if page:
        title = "Nanoseconds a call of our BPF programs takes, counting included, and how many there were:"
        return Table(["program", *found], rows, title)
    return Table(["", *found], rows, "each call of ours, as the kernel counts it (ns, runs)")


def _event(found: Event | None) -> str:
    return "-" if found is None else f"{found.ns:.0f} ({found.runs})"


def noise(document: Result, page: bool = False) -> Table:
    """A cell as the machine is, and beside busy loops; a page also tells what the machine did meanwhile."""
    rows = []
    for row in document.rows:
        quiet, noisy = number(row.quiet), number(row.noisy)
        if page:
            quiet, noisy = _full(row.quiet), _full(row.noisy)
        difference = "-" if row.difference is None else f"{row.difference:+.1%}"
        failed = [str(row.failed)] if page else []
        rows.append([row.cell, quiet, noisy, difference, str(row.rounds), *failed])
    heads = ["cell", "quiet", "noisy", "difference", "rounds", *["failed"] * page]
    machine = document.machine if page else {}
    said = [f"{name}: of {found.cpus} CPUs the VM had {found.vm:.2f}, others "
            f"{found.busy - found.vm:.2f}." for name, found in machine.items()]  # fmt: skip
    return Table(heads, rows, "\n".join(said))


def _full(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def adaptive(document: Result) -> Table:
    """Return the figures of the policy, by load."""
    rows: list[Row] = []
    for found in document.adaptive:
        chosen, decided = Counter(found.chosen), found.decided_seconds
        rows.append([
            *_place(key_of(found)),
            *(number(found.medians.get(policy)) for policy in ADAPTIVE),
            _times(found.ratio) + _interval(found),
            *(f"{pick(decided):.1f} s" if decided else "-" for pick in (median, max)),
            " ".join(f"{mode} {count}" for mode, count in sorted(chosen.items())) or "-",
        ])  # fmt: skip
    title = "the policy adaptive under the daemon: iterations/s, medians; time to the decision, median, worst"
    return Table(["load", "PLE", "n", *ADAPTIVE, "of the best", "decided", "worst", "chosen"], rows, title)


def shares(document: Result, page: bool = False) -> Table:
    """CPUs of each party."""
    rows = []
    for row in document.shares:
        ratio = estimate(row) if page else _times(row.ratio) + _interval(row)
        quota = "" if page and row.of_quota is None else _share(row.of_quota)
        rows.append([row.scene, row.party, _share(row.default), _share(row.gang), ratio, quota])
    title = "CPUs of each party, medians, under the default class and with gangs; their ratio"
    if page:
        title = "CPUs of each party, medians, by default and with gangs, and their ratio (95 % interval):"
    return Table(["scene", "party", "default", "gang", "ratio", "of cpu.max"], rows, title)


def judged(document: Result, page: bool = False) -> Table:
    """Return the bars beside the figures. The page of a matrix on more CPUs has a cell or two."""
    usual = not page or document.part != "matrix" or document.origin.smp == 2
    found = [row for row in document.judged if usual or row.measured is not None]
    if page:
        return Table(["What", "Wanted", "Measured", "95 %", "n", "failed", "Verdict"], [*map(_judged, found)])
    rows = []
    for row in found:
        measured = "-" if row.measured is None else f"{row.measured:.2f}{_interval(row)}"
        rows.append([row.what, wanted(row), measured, verdict(row)])
    return Table(["", "wanted", "measured", ""], rows)


def _judged(row: Verdict) -> Row:
    said = verdict(row).replace("missed", "**missed**")
    if row.measured is None:
        return [row.what, wanted(row), "-", "", "", "", said]
    counts = ["" if count is None else str(count) for count in (row.n, row.failed)]
    return [row.what, wanted(row), f"{row.measured:.3g}", _interval(row).strip(), *counts, said]


def wanted(row: Verdict) -> str:
    """The bar."""
    return "reported" if row.wanted is None else f"{'<=' if row.most else '>='} {row.wanted:g}"


def verdict(row: Verdict) -> str:
    """Return the row's verdict: met, missed, open or not measured; empty if there is nothing to judge."""
    if row.measured is None:
        return "not measured"
    if row.wanted is None:
        return ""
    without = f": without {', '.join(row.without)}" if row.without else ""
    return {True: "met", False: "missed", None: f"open{without}"}[row.met]


def notes(document: Result) -> Iterator[str]:
    """Yield warnings and the number of failures."""
    yield from warnings(document)
    failed = sum(found.failed for found in document.cells)
    yield f"{failed} rounds failed (they count), {len(document.lab_failures)} lab failures"


def warnings(document: Result) -> Iterator[str]:
    """Yield the variants that were not available, and that ratios are of mixed runs."""
    reasons = {(c.variant, c.unavailable): None for c in document.cells if c.unavailable}
    for variant, reason in reasons:
        yield f"{variant}: not available: {reason}"
    if any(not ratio.within_one_run for ratio in document.ratios):
        yield "some ratios compare figures of different runs (within_one_run)"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
