# SPDX-License-Identifier: Apache-2.0
"""result.json, and what of it is said at the end: tables, wanted against reached, the exit status. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.demo import table
from bench.demo.phases import Phase, Run
from bench.demo.table import NOT_MEASURED
from lab.observe.service import Call, Cost

SCHEMA = 2
WANTED_CORUN = 0.95
REQUIRED_CORUN = 0.8
REQUIRED_RATIO = 1.0  # gang against default
WANTED_RATIO = {False: 2.0, True: 1.0}  # gang against default, barrier; by PLE
# The guests' own lock is the bottleneck of this load: guests that run apart can win.
OWN_LOCK = "spinlock"
WANTED_RSS = 80 << 20
WANTED_CPU = 0.01

OK, MISSED, FAILED = "ok", "missed", "FAILED"
NO_VERDICT = 69
WIDTH = 110

Document = dict[str, Any]


def run_document(run: Run) -> Document:
    """All loads with PLE on or off."""
    differences = None if run.differences is None else [asdict(d) for d in run.differences]
    return {
        "ple": run.ple,
        "planned": dict(run.planned),
        "loads": run.loads,
        "uuids": run.uuids,
        "phases": {name: _phase(phase) for name, phase in run.phases.items()},
        "calls": [_call(call) for call in run.calls],
        "statuses": run.statuses,
        "lost": asdict(run.lost) if run.lost else None,
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
        "disturbed_repeats": phase.disturbed,
        "machine_noise": phase.noise,
        "cpus": dict(phase.cpus),
        "figures": {name: asdict(figures) for name, figures in phase.figures.items()},
        "repeats": [{name: asdict(f) for name, f in repeat.items()} for repeat in phase.repeats],
        "timeline": [asdict(stretch) for stretch in phase.timeline],
    }


def _call(call: Call) -> Document:
    return {"command": " ".join(("gangctl", *call.words)), "seconds": call.seconds,
            "cpu_seconds": call.cpu_seconds}  # fmt: skip


def document(runs: Sequence[Run], cost: Cost | None, ejections: float | None, failure: str | None,
             trouble: str | None, extra: Mapping[str, Any]) -> Document:  # fmt: skip
    """The whole of result.json. failure: what gangd did not do; trouble: why the lab gave up."""
    status = next((status for run in runs for status in run.statuses), {})
    result: Document = {
        "schema": SCHEMA,
        "kernel": status.get("kernel"),
        "version": status.get("version"),
        "backend": (status.get("backend") or {}).get("name"),
        **extra,
        "runs": [run_document(run) for run in runs],
        "daemon": asdict(cost) if cost else None,
        "ejections": ejections,
        "failure": failure,
        "trouble": trouble,
    }
    result["summary"] = list(checks(result))
    result["exit_status"] = exit_status(result)
    return result


def checks(result: Document) -> Iterator[Document]:
    """Wanted against reached. A check that is `required` decides the exit status, others are figures."""
    for view in table.views(result["runs"]):
        yield from ({**check, "view": view["title"]} for check in (*_figures(view), *_kept(view)))
    cost = result["daemon"] or {"rss_bytes": None, "cpu_share": None}
    rss, cpu = cost["rss_bytes"], cost["cpu_share"]
    yield _daemon_works(result)
    yield _check("gangd: resident memory", f"< {WANTED_RSS >> 20} MiB",
                 None if rss is None else f"{rss / (1 << 20):.1f} MiB",
                 rss is not None and rss < WANTED_RSS)  # fmt: skip
    yield _check("gangd: share of one CPU, nothing changing", f"< {WANTED_CPU:.0%}",
                 None if cpu is None else f"{cpu:.2%}", cpu is not None and cpu < WANTED_CPU)  # fmt: skip


def _figures(view: Document) -> Iterator[Document]:
    """Yield the checks of the measured figures. Below a floor the scheduler does not do its work."""
    wanted = WANTED_RATIO[view["ple"]] if view["load"] == "barrier" else 1.0
    floor = None if view["load"] == OWN_LOCK else REQUIRED_RATIO
    yield _bounded("throughput gang / default", table.against(view, "gang", "default"), wanted, floor, "x")
    yield _bounded("throughput gang / pinned", table.against(view, "gang", "pinned"), 1.0, unit="x")
    corun = table.worst_corun(view, "gang")
    yield _bounded("co-run share, worst guest", corun, WANTED_CORUN, REQUIRED_CORUN)


def _kept(view: Document) -> Iterator[Document]:
    """Yield the checks that have to hold whatever the figures."""
    before, gang = (view["phases"].get(phase, {}).get("cpus", {}) for phase in ("default", "gang"))
    places = [(cpus, before.get(name, [])) for name, cpus in gang.items() if name in view["guests"]]
    vcpus = sum(len(cpus) for cpus, _ in places)
    same = sum(one == other for cpus, others in places for one, other in zip(cpus, others, strict=False))
    yield _check(
        "gangs run where they may", "all vCPUs", f"{same} of {vcpus}" if vcpus else None, same == vcpus
    )
    restored = view["restored"]
    reached = None
    if restored["same"] is not None:
        compared, differing = restored["settings_compared"], len(restored["differences"])
        reached = f"{differing} of {compared} differ" if differing else f"all {compared}"
    yield _check("settings as before the mark", "all", reached, restored["same"] is True, required=True)
    yield _alive(view)


def _alive(view: Document) -> Document:
    """A guest that was lost before gangd touched it is the lab's; after that gangd has to be suspected."""
    lost, number = view["lost"], len(view["guests"])
    reached = None
    if lost is None:
        if len(view["phases"]) == len(table.PHASES) and view["phases"][table.PHASES[-1]]["measured"]:
            reached = f"all {number}"
    elif lost["phase"] not in ("start", table.PHASES[0]):
        reached = f"{lost['phase']}: {lost['sentence']}"
    return _check("guests alive, and get on", "all", reached, lost is None, required=True)


def _daemon_works(result: Document) -> Document:
    statuses = [status for run in result["runs"] for status in run["statuses"]]
    marked = [run["statuses"][0] for run in result["runs"] if run["statuses"]]
    said = [sentence for status in statuses for sentence in status["failures"]]
    said += [part["reason"] or f"no {name}" for status in marked for name in ("backend", "probes")
             if not (part := status[name])["active"]]  # fmt: skip
    pids = {status["own"]["pid"] for status in statuses}
    reached, good = None, False
    if result["failure"]:
        reached = result["failure"]
    elif statuses and result["ejections"] is not None:
        counts = f"{len(pids)} process, {len(said)} failures, {result['ejections']:.0f} ejections"
        reached, good = "; ".join([counts, *said]), len(pids) == 1 and not said and result["ejections"] == 0
    return _check("gangd: at work", "one process, no failure", reached, good, required=True)


def _bounded(
    name: str, value: float | None, wanted: float, floor: float | None = None, unit: str = ""
) -> Document:
    """A figure with what is wanted, and the floor below which it has failed; None: it cannot."""
    text = f">= {wanted:g}{unit}"
    shown = None if value is None else f"{value:.{2 if unit else 3}f}{unit}"
    if floor is not None and value is not None and value < floor:
        return _check(name, text, shown, False, required=True)
    found = _check(name, text, shown,
                   value is not None and value >= wanted)  # fmt: skip
    return {**found, "required": floor is not None}


def _check(name: str, wanted: str, reached: str | None, met: bool, required: bool = False) -> Document:
    """reached: None where it is not known; then there is no verdict either."""
    verdict = OK if met else FAILED if required else MISSED
    return {"view": None, "name": name, "wanted": wanted, "reached": "-" if reached is None else reached,
            "verdict": NOT_MEASURED if reached is None else verdict, "required": required}  # fmt: skip


def exit_status(result: Document, strict: bool = False) -> int:
    """1: gangd did not do its work. 69: what it had to do was not measured. 0: it did, whatever the figures.

    strict: a missed figure counts as gangd's failure, and every figure has to be measured.
    """
    every = result["summary"]
    if any(check["verdict"] == FAILED or (strict and check["verdict"] == MISSED) for check in every):
        return 1
    unknown = any(c["verdict"] == NOT_MEASURED and (strict or c["required"]) for c in every)
    return NO_VERDICT if unknown or not result["runs"] or result["trouble"] else 0


def lines(result: Document) -> Iterator[str]:
    """Yield the lines printed at the end."""
    for run in result["runs"]:
        if run["phases"]:
            yield from ("", *table.of_run(run).text())
    yield from ("", *block(result), "")
    for run in result["runs"]:
        for d in run["restored"]["differences"] or []:
            yield f"not restored: {d['setting']}: {d['before']} -> {d['after']}"
    thrown = sum(p["disturbed_repeats"] for run in result["runs"] for p in run["phases"].values())
    if thrown:
        yield f"{thrown} repeats thrown away because the machine was busy"
    if result["trouble"]:
        yield f"ended early: {result['trouble']}"


def block(result: Document) -> Iterator[str]:
    """All runs, all checks, and what the lab did for itself: nothing is left out."""
    yield from (*table.overview(table.views(result["runs"])).text(), "")
    for found in table.verdicts(result["summary"]):
        yield from (*found.text(), "")
    yield f"* decides the exit status; of throughput only what is below {REQUIRED_RATIO:g}x, of co-run below"
    yield f"{REQUIRED_CORUN}. {OWN_LOCK}'s throughput does not: the guests' own lock is in the way there."
    settings = result["settings"]
    clock = "virtual seconds" if settings["virtual"] else "seconds"
    said = [f"Medians of {settings['repeats']} repeats of {settings['seconds']:g} {clock}."]
    said += [f"The {len(run['loads'])} guests of {', '.join(run['planned'])} run at once."
             for run in result["runs"] if len(run["planned"]) > 1]  # fmt: skip
    took = list(_longest(call for run in result["runs"] for call in run["calls"]))
    if took:
        said.append(f"On the busy host gangctl took, in {clock} at most: {'; '.join(took)}.")
    helped = settings["help_lab"]
    said.append(f"The lab helps itself with {'; '.join(helped) if helped else 'no weight and no pin'}.")
    yield from textwrap.wrap(" ".join(said), WIDTH)


def _longest(calls: Iterable[Document]) -> Iterator[str]:
    """The longest call of each kind. The scheduler is loaded by the first gang's."""
    found: dict[str, float] = {}
    for call in calls:
        words = call["command"].split()[1:]  # without gangctl; the second is the guest
        kind = " ".join([words[0], *words[2:]])
        found[kind] = max(found.get(kind, 0.0), call["seconds"])
    for kind, seconds in found.items():
        loads = " (loads the scheduler)" if kind.endswith("adaptive") else ""
        yield f"{kind}{loads} {seconds:.1f}"
