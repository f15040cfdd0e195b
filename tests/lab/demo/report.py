# SPDX-License-Identifier: Apache-2.0
"""result.json, and what of it is said at the end: tables, wanted against reached, the exit status. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from demo import table
from demo.figures import TOTAL, overlap
from demo.linux import LinuxRun
from demo.service import Call, Cost
from demo.session import Phase, Run

SCHEMA = 1
WANTED_CORUN = 0.95
WANTED_RATIO = {False: 2.0, True: 1.0}  # gang against default, barrier; by PLE
WANTED_RSS = 80 << 20
WANTED_CPU = 0.01

Document = dict[str, Any]


def run_document(run: Run) -> Document:
    """One load with PLE on or off."""
    differences = None if run.differences is None else [asdict(d) for d in run.differences]
    return {
        "load": run.load,
        "ple": run.ple,
        "guests": run.uuids,
        "phases": {name: _phase(phase) for name, phase in run.phases.items()},
        "marks": [_call(call) for call in run.marks],
        "unmarks": [_call(call) for call in run.unmarks],
        "restored": {
            "same": None if differences is None else not differences,
            "settings_compared": run.compared,
            "settings_different_while_marked": run.differing,
            "differences": differences,
        },
    }


def _phase(phase: Phase) -> Document:
    return {
        "measured": phase.measured,
        "disturbed": phase.disturbed > 0,
        "repeated": phase.disturbed + len(phase.failures),
        "disturbed_repeats": phase.disturbed,
        "lab_failures": phase.failures,
        "machine_noise": phase.noise,
        "figures": {name: asdict(figures) for name, figures in phase.figures.items()},
        "repeats": [{name: asdict(f) for name, f in repeat.items()} for repeat in phase.repeats],
    }


def _call(call: Call) -> Document:
    return {"command": " ".join(("gangctl", *call.words)), "seconds": call.seconds,
            "cpu_seconds": call.cpu_seconds}  # fmt: skip


def document(status: Mapping[str, Any], runs: list[Run], linux: LinuxRun | None, cost: Cost | None,
             failure: str | None, extra: Mapping[str, Any]) -> Document:  # fmt: skip
    """The whole of result.json. status: of gangctl; failure: why it ended early."""
    result: Document = {
        "schema": SCHEMA,
        "kernel": status.get("kernel"),
        "version": status.get("version"),
        "backend": (status.get("backend") or {}).get("name"),
        **extra,
        "runs": [run_document(run) for run in runs],
        "linux_guest": asdict(linux) if linux else None,
        "daemon": asdict(cost) if cost else None,
        "failure": failure,
    }
    result["lab_failures"] = _lab_failures(result)
    result["summary"] = list(checks(result))
    result["exit_status"] = exit_status(result)
    return result


def checks(result: Document) -> Iterator[Document]:
    """Wanted against reached. A check that is `required` decides the exit status, others are figures."""
    for run in result["runs"]:
        yield from _run_checks(run)
    yield from _daemon_checks(result["daemon"])
    linux = result["linux_guest"]
    if linux is not None:
        reached = f"{'alive' if linux['alive'] else 'not alive'}, {linux['slots'] or 0} slots"
        yield _check("Linux guest: scheduled, unmarked, alive", "alive, slots", reached,
                     linux["alive"] and bool(linux["slots"]), True)  # fmt: skip


def _run_checks(run: Document) -> Iterator[Document]:
    title = f"{run['load']}, PLE {'on' if run['ple'] else 'off'}"
    complete = len(run["phases"]) == 3 and all(phase["measured"] for phase in run["phases"].values())
    if not complete:
        yield _check(f"{title}: all phases measured", "yes", "no", False, True)
    default, gang, _ = (_total(run, phase) for phase in table.PHASES)
    worst = min((f["corun"] for f in _guests(run, "gang") if f["corun"] is not None), default=None)
    yield _check(f"{title}: co-run share, worst guest", f">= {WANTED_CORUN}", _text(worst, ".3f"),
                 worst is not None and worst >= WANTED_CORUN)  # fmt: skip
    gained = None not in (default["corun"], gang["corun"]) and gang["corun"] > default["corun"]
    reached = f"{table.share(default['corun'])} -> {table.share(gang['corun'])}"
    yield _check(f"{title}: co-run share grows", "yes", reached, gained, True)
    if run["load"] == "barrier":
        yield _ratio_check(title, default, gang, WANTED_RATIO[run["ple"]])
    yield from _restored_checks(title, run)


def _ratio_check(title: str, default: Document, gang: Document, wanted: float) -> Document:
    ratio = (
        gang["throughput"] / default["throughput"] if default["throughput"] and gang["throughput"] else None
    )
    reached = "-" if ratio is None else f"{ratio:.2f}x"
    return _check(f"{title}: throughput gang / default", f">= {wanted:.0f}x", reached,
                  ratio is not None and ratio >= wanted)  # fmt: skip


def _restored_checks(title: str, run: Document) -> Iterator[Document]:
    restored = run["restored"]
    changed = f"{restored['settings_different_while_marked']} changed while marked"
    if restored["same"] is None:
        reached = "not compared"
    elif restored["same"]:
        reached = f"all {restored['settings_compared']} ({changed})"
    else:
        reached = f"{len(restored['differences'])} of {restored['settings_compared']} differ"
    yield _check(f"{title}: settings as before the mark", "all", reached, restored["same"] is True, True)
    first, last = (_totals(run, phase) for phase in ("default", "after"))
    yield _check(
        f"{title}: 3rd phase within the 1st's spread", _span(first), _span(last), overlap(first, last)
    )


def _daemon_checks(cost: Document | None) -> Iterator[Document]:
    rss, cpu = (cost["rss_bytes"], cost["cpu_share"]) if cost else (None, None)
    mebibytes = "-" if rss is None else f"{rss / (1 << 20):.1f} MiB"
    yield _check("gangd: resident memory", f"< {WANTED_RSS >> 20} MiB", mebibytes,
                 rss is not None and rss < WANTED_RSS)  # fmt: skip
    yield _check("gangd: share of one CPU, nothing changing", f"< {WANTED_CPU:.0%}", _text(cpu, ".2%"),
                 cpu is not None and cpu < WANTED_CPU)  # fmt: skip


def _check(what: str, wanted: str, reached: str, met: bool, required: bool = False) -> Document:
    return {"what": what, "wanted": wanted, "reached": reached, "met": met, "required": required}


def exit_status(result: Document) -> int:
    """0: everything was measured and the host is as it was, whatever the figures."""
    failed = any(check["required"] and not check["met"] for check in result["summary"])
    return int(failed or not result["runs"] or result["failure"] is not None)


def lines(result: Document) -> Iterator[str]:
    """What is printed at the end."""
    for run in result["runs"]:
        yield from ("", *table.of_run(run))
    yield from ("", *_settings_that_differ(result), *_summary(result["summary"]), "")
    thrown = sum(p["disturbed_repeats"] for run in result["runs"] for p in run["phases"].values())
    yield f"{thrown} repeats thrown away because the machine was busy, {result['lab_failures']} lab failures"
    calls = [call for run in result["runs"] for call in run["marks"]]
    if calls:
        longest = max(calls, key=lambda call: float(call["seconds"]))
        yield (f"the longest mark took {longest['seconds']:.1f} s on the busy host, "
               f"{longest['cpu_seconds']:.1f} s of it gangctl's own CPU time")  # fmt: skip
    if result["failure"]:
        yield f"ended early: {result['failure']}"


def _settings_that_differ(result: Document) -> Iterator[str]:
    for run in result["runs"]:
        for difference in run["restored"]["differences"] or []:
            yield f"not restored: {difference['setting']}: {difference['before']} -> {difference['after']}"


def _summary(found: list[Document]) -> Iterator[str]:
    cells = [["", "wanted", "reached", ""]]
    for check in found:
        verdict = "ok" if check["met"] else "FAILED" if check["required"] else "missed"
        cells.append([check["what"], check["wanted"], check["reached"], verdict])
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _lab_failures(result: Document) -> int:
    phases = sum(len(p["lab_failures"]) for run in result["runs"] for p in run["phases"].values())
    return phases + len((result["linux_guest"] or {}).get("failures", []))


def _total(run: Document, phase: str) -> Document:
    none = {"throughput": None, "corun": None}
    found: Document = run["phases"].get(phase, {}).get("figures", {}).get(TOTAL, none)
    return found


def _guests(run: Document, phase: str) -> list[Document]:
    figures = run["phases"].get(phase, {}).get("figures", {})
    return [values for name, values in figures.items() if name != TOTAL]


def _totals(run: Document, phase: str) -> list[float]:
    repeats = run["phases"].get(phase, {}).get("repeats", [])
    return [r[TOTAL]["throughput"] for r in repeats if r[TOTAL]["throughput"] is not None]


def _span(values: list[float]) -> str:
    return f"{table.number(min(values))} to {table.number(max(values))}" if values else "-"


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
