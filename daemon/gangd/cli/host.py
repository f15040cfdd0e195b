# SPDX-License-Identifier: Apache-2.0
"""Commands about the host: topology, plan, stats, status."""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from itertools import groupby

from gangd.cli import since
from gangd.cli.command import Command, exclusive, interval, optional_domain
from gangd.cli.domain import cpulist
from gangd.cli.rates import rates
from gangd.cli.table import UNKNOWN, count, fields, seconds, share, size, table, units, width
from gangd.control.client import Client
from gangd.control.schema import UNASKED, Document
from gangd.control.text import printable
from gangd.errors import AccessDenied, InvalidArgument, NoLibvirt, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _show_topology(document: Document, args: Namespace) -> str:
    """Packages, caches, cores and threads, indented; behind each thread the vCPUs placed on it."""
    lines = []
    cpus = sorted(document["cpus"], key=lambda c: (c["package"], c["llc"], c["core"], c["cpu"]))
    column = max((width(_thread(cpu)) for cpu in cpus), default=0) + 3
    for package, in_package in groupby(cpus, key=lambda c: c["package"]):
        members = list(in_package)
        nodes = sorted({c["node"] for c in members})
        lines.append(f" package {package}   node {cpulist(nodes)}")
        for _, in_llc in groupby(members, key=lambda c: c["llc"]):
            lines += _llc(list(in_llc), column)
    if document["offline"]:
        lines.append(f" offline: cpu {cpulist(document['offline'])}")
    return "\n".join(lines) if lines else " no CPU is known yet"


def _llc(cpus: list[Document], column: int) -> list[str]:
    caches = sorted({c["gang_domain"] for c in cpus} - {None})
    about = f"   cache {cpulist(caches)}" if caches else ""
    lines = [f"   LLC {cpulist([c['cpu'] for c in cpus])}{about}"]
    for (core, kind), threads in groupby(cpus, key=lambda c: (c["core"], c["kind"])):
        cells = [_thread(thread) for thread in threads]
        drawn = "".join(cell + " " * (column - width(cell)) for cell in cells)
        about = f"({kind}) " if kind else ""
        lines.append(f"     core {core:<3} {about}{drawn}".rstrip())
    return lines


def _thread(cpu: Document) -> str:
    guests = ", ".join(f"{printable(p['name'])}/{p['vcpu']}" for p in cpu["placed"])
    apart = " (isolated)" if cpu["isolated"] else " (in a cpuset of its own)" if cpu["taken"] else ""
    return f"cpu {cpu['cpu']}: {guests or UNKNOWN}{apart}"


def _show_plan(document: Document, args: Namespace) -> str:
    """Placements, refusals, changes: each part only when there is something in it."""
    header = not args.quiet
    parts = []
    places = [
        (g["name"], g["mode"], p["vcpu"], p["cpu"], p["reason"] or g["reason"])
        for g in document["gangs"]
        for p in g["placements"]
    ]
    places += [
        (g["name"], g["mode"], helper["threads"], cpulist(helper["cpus"]), helper["reason"])
        for g in document["gangs"]
        for helper in g["helpers"]
    ]
    alone = (g for g in document["gangs"] if not g["placements"])
    places += [(g["name"], g["mode"], None, None, g["reason"]) for g in alone]
    if places:
        parts.append(table(("Domain", "Mode", "VCPU", "CPU", "Because"), places, header))
    if args.explain:
        parts += _explained(document, header)
    refused = [(r["name"], r["reason"]) for r in document["refused"]]
    if refused:
        parts.append(table(("Refused", "Because"), refused, header))
    changes = [(c["text"], c["reason"]) for c in document["changes"]]
    if changes:
        parts.append(table(("Change", "Because"), changes, header))
    if not changes and not args.quiet:
        parts.append(" nothing to change" if places or refused else " no gang is wanted, nothing to change")
    return "\n\n".join(parts)


def _explained(document: Document, header: bool) -> list[str]:
    """The caches, and what those that were not chosen had to offer."""
    caches = [(d["gang_domain"], d["reason"]) for d in document["gang_domains"]]
    rejected = [
        (g["name"], offer["gang_domain"], cpulist(offer["cpus"]), offer["reason"])
        for g in document["gangs"]
        for offer in g["rejected"]
    ]
    parts = [table(("Cache", "Because"), caches, header)] if caches else []
    if rejected:
        parts.append(table(("Domain", "Not in cache", "CPUs", "Because"), rejected, header))
    return parts


def _plan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--explain", action="store_true", help="show also the caches, and the places that were rejected"
    )
    optional_domain(parser)


def _stats_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--interval", metavar="S", type=interval, help="show rates over S seconds instead of totals"
    )
    parser.add_argument(
        "--since", metavar="mark", choices=("mark",), help="show a domain before its mark and since"
    )
    optional_domain(parser)


def _stats(client: Client, args: Namespace) -> Document:
    exclusive(args, "interval", "since")
    if args.since is not None:
        if not args.domain:
            raise InvalidArgument("option --since needs a domain")
        return client.since(args.domain)
    if args.interval is None:
        return client.stats(args.domain)
    before = _fresh_stats(client, args.domain)
    time.sleep(args.interval)
    return rates(before, _fresh_stats(client, args.domain))


def _fresh_stats(client: Client, domain: str | None) -> Document:
    # Only root may have the daemon ask libvirt again, which may be away; the counters are read anew anyway.
    with contextlib.suppress(AccessDenied, NoLibvirt, TimedOut):
        client.refresh()
    return client.stats(domain)


def _show_stats(document: Document, args: Namespace) -> str:
    header = not args.quiet
    if args.since is not None:
        return since.show(document, header)
    rate = "/s" if "interval_seconds" in document else ""
    guests = [_guest_row(d) for d in document["domains"]]
    vcpus = [_vcpu_row(d["name"], v, rate) for d in document["domains"] for v in d["vcpus"]]
    if not guests:
        return "" if args.quiet else " no domain is running"
    turns = (f"Turns{rate}", "Whole", "Seats", "Skew", "Apart", "Borrowed", f"Throttled{rate}")
    headers = ("Domain", "Co-run", f"Co-stop{rate}", *turns)
    per_vcpu = ("Domain", "VCPU", *(h + rate for h in ("Exits", "PAUSE", "LHP", "Run delay", "Switches")))
    return table(headers, guests, header) + "\n\n" + table(per_vcpu, vcpus, header)


def _guest_row(d: Document) -> tuple[Any, ...]:
    gang = d["gang"] or {}
    return (
        d["name"],
        share(d["corun_ratio"]),
        seconds(d["costop_seconds"]),
        count(gang.get("turns")),
        share(gang.get("whole_ratio")),
        share(gang.get("seats_ratio")),
        seconds(gang.get("skew_mean_seconds")),
        share(gang.get("apart_ratio")),
        share(gang.get("borrowed_ratio")),
        seconds(gang.get("throttled_seconds")),
    )


def _vcpu_row(name: str, v: Document, rate: str) -> tuple[Any, ...]:
    return (
        name,
        v["vcpu"],
        count(v["exits_total"]),
        count(v["pause_exits"]),
        count(v["lhp_exits"]),
        seconds(v["run_delay_seconds"]),
        count(v["switches"]),
    )


def _show_status(document: Document, args: Namespace) -> str:
    own, libvirt, known = document["own"], document["libvirt"], document["domains"]
    backend, plan = document["backend"], document["plan"]
    busy = f", {known['busy']} busy" if known["busy"] else ""
    rows: list[tuple[str, object]] = [
        ("Version", f"{document['version']} (pid {own['pid']}, up {_duration(own['uptime_seconds'])})"),
        ("Kernel", document["kernel"]),
        ("Backend", _part(backend)),
    ]
    if backend["hint"]:
        rows.append(("", backend["hint"]))
    rows += [
        ("Probes", _part(document["probes"])),
        ("Libvirt", _libvirt(libvirt)),
        ("Domains", f"{known['known']} known, {known['running']} running, {known['marked']} marked{busy}"),
        ("Gangs", f"{plan['gangs']} planned, {plan['refused']} refused"),
        ("Writes", f"{own['writes']} made, {own['write_failures']} failed, {own['undone']} undone"),
        ("CPU", f"{seconds(own['cpu_seconds'])} ({share(own['cpu_ratio'])})"),
        ("Memory", size(own["resident_bytes"])),
    ]
    rows += [("Failure", failure) for failure in document["failures"]]
    return _without_empty_names(fields(rows))


def _without_empty_names(text: str) -> str:
    return "\n".join(" " + line[1:] if line.startswith(":") else line for line in text.split("\n"))


def _part(part: Document) -> str:
    if part["reason"] == UNASKED:
        return f"{part['name']}: {UNASKED}"
    state = "active" if part["active"] else "usable, not in use" if part["usable"] else "not usable"
    return f"{part['name']}: {state}" + (f" ({part['reason']})" if part["reason"] else "")


def _libvirt(libvirt: Document) -> str:
    if libvirt["connected"]:
        return f"connected to {libvirt['uri']}" if libvirt["uri"] else "not asked (daemon.guests)"
    return f"not connected ({libvirt['reason'] or 'not tried yet'})"


def _duration(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    days, hours, minutes, secs = units(value)
    return f"{days} d {hours:02}:{minutes:02}:{secs:02}" if days else f"{hours:02}:{minutes:02}:{secs:02}"


def _about(args: Namespace, words: str) -> str:
    return f" {words} domain '{printable(args.domain)}'" if args.domain else ""


COMMANDS = (
    Command(
        "topology",
        "draw the host's CPUs and who is placed where",
        lambda a: "failed to show the topology",
        lambda client, a: client.topology(),
        _show_topology,
    ),
    Command(
        "plan",
        "show what is wanted and why, and what would be changed; changes nothing",
        lambda a: f"failed to plan{_about(a, 'for')}",
        lambda client, a: client.plan(a.domain),
        _show_plan,
        _plan_arguments,
    ),
    Command(
        "stats",
        "show counters of running domains and their vCPUs",
        lambda a: f"failed to read the counters{_about(a, 'of')}",
        _stats,
        _show_stats,
        _stats_arguments,
    ),
    Command(
        "status",
        "show which parts of gangd work, and what it costs",
        lambda a: "failed to show the status",
        lambda client, a: client.status(),
        _show_status,
    ),
)
