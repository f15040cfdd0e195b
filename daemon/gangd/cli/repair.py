# SPDX-License-Identifier: Apache-2.0
"""gangctl repair: shows pins in libvirt's definitions of domains, and removes them. Needs no daemon."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace

from gangd.cli.command import Task, complain, print_document, some_domains
from gangd.cli.complete import plain
from gangd.cli.table import table
from gangd.control.text import printable
from gangd.errors import GangError
from gangd.model.cpulist import format_cpulist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gangd.cli import structs
    from gangd.libvirt_pins import Libvirt, Pinned, Row

# Kind of thread -> its name in the table, and the command of virsh that pins it.
THREADS = {
    "vcpu": ("vCPU", "vcpupin"),
    "emulator": ("emulator", "emulatorpin"),
    "iothread": ("I/O thread", "iothreadpin"),
}


def _arguments(parser: ArgumentParser) -> None:
    some_domains(parser, "remove all its pins (default: only show those of every domain)")


def _repair(args: Namespace) -> int:
    """1 when a domain could not be read, or a pin could not be removed. Raises GangError."""
    from gangd import libvirt_pins  # not for every command: it takes long to import

    uri = args.connect or _default_uri()
    host = libvirt_pins.Libvirt(uri)
    return _remove(host, args, uri) if args.domain else _list(host, args, uri)


def _default_uri() -> str:
    """Find the libvirt of a host that nobody named one for. Raises InvalidConfig.

    The configuration is the operator's word about this host; a variable counts where it says nothing.
    """
    from gangd import config

    configured = config.load().daemon.libvirt_uri
    if config.DEFAULT_PATH.exists():
        return configured
    return os.environ.get("LIBVIRT_DEFAULT_URI") or configured


def _list(host: Libvirt, args: Namespace, uri: str) -> int:
    found, failures = host.domains()
    if args.json:
        _print_documents([_document(domain, uri, {}, False) for domain in found], failures)
    elif shown := _table(found, args.quiet):
        print(shown)
    return _complain(failures, args)


def _table(found: list[Pinned], quiet: bool) -> str:
    rows = [
        (
            domain.name,
            row.where,
            _thread(row),
            format_cpulist(row.pin.cpus) + " (no limit)" * (not row.limits),
        )
        for domain in found
        for row in domain.rows
    ]
    shown = table(("Domain", "Where", "Thread", "CPUs"), rows, header=not quiet)
    if quiet:
        return shown
    if not rows:
        return "No domain has pins"
    return f"{shown}\n\nNothing was changed: 'gangctl repair DOMAIN' removes all pins of a domain"


def _thread(row: Row) -> str:
    name = THREADS[row.pin.thread][0]
    return name if row.pin.number is None else f"{name} {row.pin.number}"


def _remove(host: Libvirt, args: Namespace, uri: str) -> int:
    """Nothing is changed before all domains are found, and each one's pins are told."""
    found = {domain.uuid: domain for domain in [host.find(ref) for ref in args.domain]}
    documents: list[structs.Pinned] = []
    failures: list[str] = []
    for domain in found.values():
        if not args.json:
            print(_told(domain, uri, args.quiet), end="", flush=True)
        failed = host.remove(domain)
        if not args.json and not args.quiet:
            print(_removed(domain, failed))
        documents.append(_document(domain, uri, failed, True))
        failures += failed.values()
    if args.json:
        _print_documents(documents, failures)
    return _complain(failures, args)


def _told(domain: Pinned, uri: str, quiet: bool) -> str:
    """The pins that are going to be removed, as what puts them back; quiet: nothing else."""
    lines = [_put_back(domain, row, uri) for row in domain.removable]
    if lines and not quiet:
        name = printable(domain.name)
        lines = [f"Domain '{name}' has these pins; to put them back:", *(f"    {line}" for line in lines)]
    return "".join(f"{line}\n" for line in lines)


def _put_back(domain: Pinned, row: Row, uri: str) -> str:
    """A command for a shell; for a saved image, of which virsh pins nothing, a comment."""
    virsh = f"virsh -c {shlex.quote(uri)}" if uri else "virsh"
    # A name is a stranger's text: no shell, and no virsh, must take it for anything else.
    who = domain.name if plain(domain.name) else domain.uuid
    if row.where == "saved":
        return printable(f"# {virsh} managedsave-edit {who}: {row.pin.element()} in <cputune>")
    number = "" if row.pin.number is None else f" {row.pin.number}"
    cpus = format_cpulist(row.pin.cpus)
    return printable(f"{virsh} {THREADS[row.pin.thread][1]} {who}{number} {cpus} --{row.where}")


def _removed(domain: Pinned, failed: dict[str, str]) -> str:
    name = printable(domain.name)
    done = [row for row in domain.removable if row.where not in failed]
    if not domain.removable:
        return f"Domain '{name}' has no pins to remove"
    live = [row for row in done if row.where == "live"]
    said = f"Domain '{name}': {_count(len(done) - len(live), 'pin')} removed"
    if not live:
        return said
    return f"{said}, {_count(len(live), 'live one')} widened to CPUs {format_cpulist(live[0].free)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


def _document(domain: Pinned, uri: str, failed: dict[str, str], removing: bool) -> structs.Pinned:
    from gangd.cli import structs  # not for every command: msgspec takes long to import

    rows = [
        structs.Pin(
            where=row.where,
            thread=row.pin.thread,
            number=row.pin.number,
            cpus=sorted(row.pin.cpus),
            limits=row.limits,
            removed=removing and row.removable and row.where not in failed,
            put_back=_put_back(domain, row, uri),
        )
        for row in domain.rows
    ]
    return structs.Pinned(uuid=domain.uuid, name=domain.name, id=domain.id, pins=rows)


def _print_documents(domains: list[structs.Pinned], failures: list[str]) -> None:
    from gangd.cli.structs import Repair

    print_document(Repair(domains=domains, failures=failures))


def _complain(failures: list[str], args: Namespace) -> int:
    """The exit status."""
    for failure in failures:
        if not args.json:  # whose document has them
            complain(GangError(failure, _failure(args)), False)
    return int(bool(failures))


def _failure(args: Namespace) -> str:
    names = ", ".join(f"'{printable(name)}'" for name in args.domain)
    about = f"domain{'s'[: len(args.domain) != 1]} {names}"
    return f"failed to repair {about}" if names else "failed to list the pins of all domains"


COMMANDS = (
    Task(
        "repair",
        "show the pins in libvirt's definitions, or remove those of some domains; needs no daemon",
        _failure,
        _repair,
        _arguments,
    ),
)
