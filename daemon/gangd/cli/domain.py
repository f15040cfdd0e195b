# SPDX-License-Identifier: Apache-2.0
"""Commands about one domain, and the list of them: mark, set, unmark, list, dominfo, vcpuinfo."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from gangd.cli.affect import affect, affect_arguments, later
from gangd.cli.command import Command, domain_argument
from gangd.cli.table import count, fields, seconds, share, size, table
from gangd.control.client import Client
from gangd.control.schema import Document
from gangd.control.text import printable
from gangd.model.cpulist import format_cpulist

SOURCES = ("libvirt", "kvm")
NOT_SCHEDULED = ("waiting", "refused", "undone", "invalid mark")


class Marking(Command):
    """Fails, though the mark is stored, when the guest is not scheduled as it says."""

    def status(self, document: Document, args: Namespace) -> int:
        """1 of a guest that runs, and has to do what its mark says, but does not; else 0."""
        d = document["domain"]
        return int(bool(d["schedule_code"]) and not (later(args) and d["id"] is not None))


def _weight(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10000:
        raise ArgumentTypeError(f"'{printable(text)}' is not a number from 1 to 10000")
    return value


def _mark_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="P", help="how to schedule it (default: scheduler.policy)")
    parser.add_argument(
        "--weight", metavar="N", type=_weight, help="share of CPU time, 1 to 10000 (default: its cpu_shares)"
    )
    affect_arguments(parser)
    domain_argument(parser)


def _set_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="P", help="how to schedule it")
    parser.add_argument("--weight", metavar="N", type=_weight, help="share of CPU time, 1 to 10000")
    affect_arguments(parser)
    domain_argument(parser)


def _unmark_arguments(parser: ArgumentParser) -> None:
    affect_arguments(parser)
    domain_argument(parser)


def _list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also domains that are not running")
    parser.add_argument("--inactive", action="store_true", help="only domains that are not running")
    parser.add_argument("--marked", action="store_true", help="only marked domains")
    parser.add_argument("--source", choices=SOURCES, help="only domains that it tells of")
    parser.add_argument("--uuid", action="store_true", help="print only UUIDs, one a line")
    parser.add_argument("--name", action="store_true", help="print only names, one a line")


def _list(client: Client, args: Namespace) -> Document:
    """Fetch the domains that the options select; as in virsh, --all overrides --inactive."""
    document = client.domains(args.all or args.inactive)
    if args.inactive and not args.all:
        document["domains"] = [d for d in document["domains"] if d["id"] is None]
    if args.marked:
        document["domains"] = [d for d in document["domains"] if d["marked"]]
    if args.source:
        document["domains"] = [d for d in document["domains"] if d["source"] == args.source]
    return document


def _show_list(document: Document, args: Namespace) -> str:
    if args.uuid or args.name:
        return "\n".join(_called(d, args.uuid, args.name) for d in document["domains"])
    several = any(d["source"] != SOURCES[0] for d in document["domains"])
    names = ("Id", "Name", *["Source"] * several)
    headers = (*names, "State", "Policy", "By", "Schedule", "CPUs", "Co-run", "PAUSE exits")
    rows = [
        (
            d["id"],
            d["name"],
            *[d["source"]] * several,
            f"{d['state']}, busy" if d["busy"] else d["state"],
            _policy(d),
            _by(d),
            d["schedule"],
            cpulist(d["cpus"]),
            share(d["corun_ratio"]),
            count(d["pause_exits"]),
        )
        for d in document["domains"]
    ]
    return table(headers, rows, header=not args.quiet)


def _called(d: Document, uuid: bool, name: bool) -> str:
    """Return a domain's identifier for scripts: its UUID, its name, or both as virsh writes them."""
    return " ".join([d["uuid"]] * uuid + [printable(d["name"])] * name)


def _policy(d: Document) -> str | None:
    """The profile or policy that was chosen for a domain."""
    chosen: dict[str, str | None] = d["chosen"] or {}
    return chosen.get("profile") or chosen.get("policy")


def _by(d: Document) -> str | None:
    """Return the source of a domain's choice: the mark, the default, or a selector's line in the file."""
    source: str | None = d["chosen"] and d["chosen"]["source"]
    line = source.rpartition(":")[2] if source else ""
    return f"line {line}" if line.isdecimal() else source


def cpulist(cpus: list[int] | None) -> str | None:
    """CPU numbers in the kernel's list form, None when unknown."""
    return None if cpus is None else format_cpulist(cpus)


def _show_dominfo(document: Document, args: Namespace) -> str:
    d = document["domain"]
    gang = d["gang"] or {}
    weight = d["gang_weight"] if d["weight"] is None else d["weight"]
    return fields(
        [
            ("Id", d["id"]),
            ("Name", d["name"]),
            ("UUID", d["uuid"]),
            ("Source", d["source"]),
            ("State", d["state"]),
            ("Busy", d["busy"] or "no"),
            ("CPU(s)", d["vcpus"]),
            ("Memory", size(d["memory_bytes"])),
            ("Marked", "yes" if d["marked"] else "no"),
            ("Tag", d["tag"]),
            ("Policy", d["chosen"] and d["chosen"]["policy"]),
            ("Profile", d["chosen"] and d["chosen"]["profile"]),
            ("Chosen by", d["chosen"] and d["chosen"]["source"]),
            ("Weight", weight),
            ("Schedule", d["schedule"]),
            ("Because", d["schedule_reason"]),
            ("Cache", d["gang_domain"]),
            ("Host CPUs", cpulist(d["cpus"])),
            ("Co-run", share(d["corun_ratio"])),
            ("Co-stop", seconds(d["costop_seconds"])),
            ("Turns", count(gang.get("turns"))),
            ("Whole", share(gang.get("whole_ratio"))),
            ("Seats", share(gang.get("seats_ratio"))),
            ("Apart", share(gang.get("apart_ratio"))),
            ("Borrowed", share(gang.get("borrowed_ratio"))),
            ("Throttled", seconds(gang.get("throttled_seconds"))),
            ("Yields", count(gang.get("yields"))),
            ("Yields hit", count(gang.get("yields_hit"))),
            ("PAUSE exits", count(d["pause_exits"])),
            ("LHP exits", count(d["lhp_exits"])),
        ]
    )


def _vcpuinfo_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--pretty", action="store_true", help="show the affinity as a list of CPUs")
    domain_argument(parser)


def _show_vcpuinfo(document: Document, args: Namespace) -> str:
    """A paragraph for each vCPU: first what virsh shows of it, then what gangd knows."""
    if not document["vcpus"]:
        return "" if args.quiet else " the domain is not running"
    host_cpus = document.get("host_cpus")  # that key is new: a gangd that still runs may not have it
    return "\n\n".join(
        fields(
            [
                ("VCPU", v["vcpu"]),
                ("CPU", v["cpu"]),
                ("CPU time", seconds(v["cpu_seconds"])),
                ("CPU Affinity", _affinity(v["affinity"], host_cpus, args.pretty)),
                ("Thread", v["tid"]),
                ("Run delay", seconds(v["run_delay_seconds"])),
                ("Placed on", v["placed_cpu"]),
                ("Because", v["placed_reason"]),
            ]
        )
        for v in document["vcpus"]
    )


def _affinity(cpus: list[int] | None, host_cpus: int | None, pretty: bool) -> str | None:
    """The CPUs that libvirt allows, as virsh draws them: a letter for each of the host's."""
    if cpus is None or host_cpus is None:
        return cpulist(cpus)
    if pretty:
        return f"{cpulist(cpus)} (out of {host_cpus})"
    return "".join("y" if cpu in cpus else "-" for cpu in range(host_cpus))


def _show_marked(document: Document, args: Namespace) -> str:
    """Return the result of the mark; a refused guest is marked nevertheless, and keeps its old schedule."""
    d = document["domain"]
    if later(args) and d["id"] is not None:
        return f"Domain '{printable(d['name'])}' marked from its next start on"
    kind = "profile" if d["chosen"] and d["chosen"]["profile"] else "policy"
    said = f"Domain '{printable(d['name'])}' marked, {kind} {printable(d['policy'] or '-')}"
    if d["schedule_code"]:
        now = "" if d["schedule"] in NOT_SCHEDULED else f" as it is to be, and {d['schedule']} now"
        reason = printable(d["schedule_reason"] or d["schedule_code"])
        return f"Domain '{printable(d['name'])}' marked, but not scheduled{now}: {reason}"
    if args.quiet:
        return said
    chooser, _, figure = (d["schedule_reason"] or "").partition(": ")
    if figure and d["chosen"] and chooser == d["chosen"]["policy"]:  # one that looked at the guest
        return f"{said}: {printable(figure)}"
    return f"{said}, on CPUs {cpulist(d['cpus'])}" if d["cpus"] else said


def _show_unmarked(document: Document, args: Namespace) -> str:
    """A guest that a selector chooses is scheduled without a mark, too."""
    d = document["domain"]
    said = f"Domain '{printable(d['name'])}' unmarked"
    if later(args) and d["id"] is not None:
        return f"{said} from its next start on"
    if d["chosen"] is None or d["chosen"]["policy"] == "off":
        return said
    return f"{said}; still chosen by {printable(d['chosen']['source'])} ('--policy off' marks an exception)"


COMMANDS = (
    Marking(
        "mark",
        "have a domain's vCPUs run at the same time",
        lambda a: f"failed to mark domain '{printable(a.domain)}'",
        lambda client, a: client.mark(a.domain, a.policy, a.weight, affect(a)),
        _show_marked,
        _mark_arguments,
        starts=lambda a: True,
    ),
    Marking(
        "set",
        "change a domain's mark",
        lambda a: f"failed to change the mark of domain '{printable(a.domain)}'",
        lambda client, a: client.set(a.domain, a.policy, a.weight, affect(a)),
        _show_marked,
        _set_arguments,
        starts=lambda a: True,
    ),
    Command(
        "unmark",
        "take the mark away and put the domain back as it was",
        lambda a: f"failed to unmark domain '{printable(a.domain)}'",
        lambda client, a: client.unmark(a.domain, affect(a)),
        _show_unmarked,
        _unmark_arguments,
        starts=lambda a: True,
    ),
    Command(
        "list",
        "list domains",
        lambda a: "failed to list domains",
        _list,
        _show_list,
        _list_arguments,
    ),
    Command(
        "dominfo",
        "show a domain: its mark, how it is scheduled and why",
        lambda a: f"failed to show domain '{printable(a.domain)}'",
        lambda client, a: client.dominfo(a.domain),
        _show_dominfo,
        domain_argument,
    ),
    Command(
        "vcpuinfo",
        "show a domain's vCPUs: threads, host CPUs, time",
        lambda a: f"failed to show the vCPUs of domain '{printable(a.domain)}'",
        lambda client, a: client.vcpuinfo(a.domain),
        _show_vcpuinfo,
        _vcpuinfo_arguments,
    ),
)
