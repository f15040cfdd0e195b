# SPDX-License-Identifier: Apache-2.0
"""gangctl event: waits for what gangd does and finds, as `virsh event` does."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from gangd.cli.command import Task, connected, exclusive, interval, optional_domain, print_document
from gangd.control.schema import EVENTS, Document
from gangd.control.text import printable
from gangd.errors import TimedOut


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--event", metavar="KIND", choices=EVENTS, help="wait for events of that kind alone")
    parser.add_argument("--all", action="store_true", help="wait for events of all kinds (default)")
    parser.add_argument("--list", action="store_true", help="list the kinds of events; needs no daemon")
    parser.add_argument("--loop", action="store_true", help="go on after the first event")
    parser.add_argument("--timeout", metavar="SEC", type=interval, help="end after SEC seconds")
    parser.add_argument("--timestamp", action="store_true", help="show when each event happened")
    optional_domain(parser)


def _event(args: Namespace) -> int:
    """0 when an event came; Ctrl-C is a way to end, not a failure."""
    for one, other in (("all", "event"), ("list", "all"), ("list", "event")):
        exclusive(args, one, other)
    if args.list:
        return _list(args.json)
    return _wait(args)


def _list(as_json: bool) -> int:
    if as_json:
        from gangd.cli.structs import Events

        print_document(Events(events=list(EVENTS)))
    else:
        print(*EVENTS, sep="\n")
    return 0


def _wait(args: Namespace) -> int:
    """Wait until what was asked for has come; the exit status."""
    from gangd.control.listen import listen

    client = connected(args)
    uuid = client.dominfo(args.domain)["domain"]["uuid"] if args.domain else None
    count, ended = 0, "event loop timed out"
    try:
        for event in listen(args.bus, args.timeout):
            if uuid not in (None, event["uuid"]) or args.event not in (None, event["event"]):
                continue
            count += 1
            print(json.dumps(event) if args.json else shown(event, args.timestamp), flush=True)
            if not args.loop:
                ended = ""
                break
    except KeyboardInterrupt:
        ended = "event loop interrupted"
    if count == 0 and ended == "event loop timed out":
        raise TimedOut(f"nothing happened in {args.timeout:g} seconds")
    if not (args.json or args.quiet):
        print(*filter(None, (ended, f"events received: {count}")), sep="\n")
    return 0 if count else 1


def shown(event: Document, timestamp: bool = False) -> str:
    """Return an event as a line, worded and stamped as virsh does."""
    subject = ""
    if event["uuid"] is not None:
        subject = f" for domain '{printable(event['name'])}'"
    elif event["backend"] is not None:
        subject = f" for backend '{printable(event['backend'])}'"
    mark = tuple(f"{key} {event[key]}" for key in ("policy", "weight") if event[key] is not None)
    parts = {
        "marked": mark,
        "scheduled": (event["schedule"], event["reason"]),
        "libvirt-found": (event["uri"],),
    }.get(event["event"], (event["reason"],))
    about = ", ".join(printable(part) for part in parts if part)
    line = f"event '{printable(event['event'])}'{subject}" + (f": {about}" if about else "")
    return f"{_stamp(event['time_seconds'])}: {line}" if timestamp else line


def _stamp(seconds: float) -> str:
    """Return a time as virTimeStringNow writes it: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "milliseconds").replace("+00:00", "+0000")


COMMANDS = (
    Task(
        "event",
        "wait for something to happen: marks, schedules, the backend, libvirt",
        lambda a: "failed to wait for an event" + (f" of domain '{printable(a.domain)}'" if a.domain else ""),
        _event,
        _arguments,
    ),
)
