# SPDX-License-Identifier: Apache-2.0
"""Send log records where they belong, and tell the systemd journal of them beside the text.

    journalctl GANGD_DOMAIN=web       what gangd did with one guest
    journalctl GANGD_EVENT=refused    every guest it could not make a gang

Under systemd a record is a journal entry with fields. Values travel with their length
(sd_journal_sendv(3)), so whatever a name holds, it is one value of one field. The text is made
printable. Elsewhere the text alone goes to stderr.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from gangd.control.text import printable
from gangd.model.domain import Domain, Mode
from gangd.model.event import Connected, Disconnected, Event
from gangd.model.plan import GangPlan, Plan, Refusal


class _Formatter(logging.Formatter):
    """A stranger's text in a message cannot steer the terminal that shows it; tracebacks are ours."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message.expandtabs())
        return super().formatMessage(record)


def setup(program: str, verbose: bool = False) -> None:
    """Send the records of `program` to the journal where stderr is connected to it, else to stderr."""
    if to_journal():
        from systemd.journal import JournalHandler  # only here: nobody else needs libsystemd's

        handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER=program)
        handler.setFormatter(_Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO)


def to_journal() -> bool:
    """True if stderr is the stream that systemd names in $JOURNAL_STREAM (systemd.exec(5)): not that of a
    parent that was started so and has since sent it elsewhere."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    if not device.isdecimal() or not inode.isdecimal():
        return False
    found = os.fstat(sys.stderr.fileno())
    return (found.st_dev, found.st_ino) == (int(device), int(inode))


def about(event: str, domain: Domain | GangPlan | Refusal | None = None) -> dict[str, str]:
    """The journal's fields of a record, for `extra=`: what happened (docs/operations.md), and to whom."""
    fields = {"GANGD_EVENT": event}
    if domain:
        # Text that UTF-8 cannot carry would lose the whole entry.
        name = domain.name.encode("utf-8", "replace").decode()
        fields |= {"GANGD_DOMAIN": name, "GANGD_UUID": domain.uuid}
    return fields


def subject(sentence: str, domains: Iterable[Domain]) -> Domain | None:
    """The domain that a failure names in quotes or by UUID; None where that is none, or more than one."""
    named = [d for d in domains if f"'{d.name}'" in sentence or d.uuid in sentence]
    return named[0] if len(named) == 1 else None


def reloaded(log: logging.Logger, taken: Sequence[str], kept: Sequence[str]) -> None:
    """Say which keys of a configuration were taken up, and which were not."""
    later = f"; not before a restart: {', '.join(kept)}" if kept else ""
    sentence = f"configuration read again, changed: {', '.join(taken) or 'nothing'}{later}"
    log.log(logging.WARNING if kept else logging.INFO, "%s", sentence, extra=about("reloaded"))


def connection(log: logging.Logger, event: Event) -> None:
    """Say that libvirt was found or lost, if that is what happened."""
    if isinstance(event, Connected) and event.uri:
        log.info("connected to libvirt at %s", event.uri, extra=about("connected"))
    elif isinstance(event, Disconnected):
        sentence = "libvirt is not reachable, waiting for it: %s"
        log.warning(sentence, event.reason, extra=about("disconnected"))


def news(before: Plan, now: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a sentence and its fields for each guest whose mode changed or that is newly refused."""
    for gang in now.gangs:
        was = before.gang(gang.uuid)
        if was is None and gang.mode is Mode.OFF:
            yield f"domain '{gang.name}' is left alone for now: {gang.reason}", about("mode", gang)
        elif was is None:
            yield f"domain '{gang.name}' is a gang, {gang.mode}: {gang.reason}", about("gang", gang)
        elif was.mode is not gang.mode:
            yield f"domain '{gang.name}' is {gang.mode} now: {gang.reason}", about("mode", gang)
    for gang in before.scheduled:
        if now.gang(gang.uuid) is None:
            yield f"domain '{gang.name}' is no gang any more", about("no-gang", gang)
    for refusal in now.refused:
        if refusal not in before.refused:
            sentence = f"domain '{refusal.name}' cannot be a gang: {refusal.reason}"
            yield sentence, about("refused", refusal)
