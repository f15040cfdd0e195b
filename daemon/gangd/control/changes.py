# SPDX-License-Identifier: Apache-2.0
"""The changes between two snapshots as documents: the events of `gangctl event`. Pure.

States are compared, not messages: a change that came and went between two snapshots is no event,
and no change that lasts is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gangd.control.documents import Scheduled, made_of, schedule
from gangd.control.schema import EVENTS
from gangd.control.structs import Event
from gangd.model.domain import Domain
from gangd.model.snapshot import Part, Snapshot
from gangd.model.state import State

# How a domain is scheduled now (documents.schedule), as an event; every mode but off is "scheduled".
_BY_SCHEDULE = {
    None: "released",
    "off": "released",
    "waiting": "waiting",
    "refused": "refused",
    "undone": "undone",
    "invalid mark": "invalid-mark",
}


def changes(before: Snapshot, after: Snapshot) -> list[Event]:
    """The events that lead from one snapshot to a later one of the same daemon: causes first."""
    found = [
        *_libvirt(before.state, after.state),
        *_backend(before.backend, after.backend),
        *_domains(before, after),
    ]
    for event in found:
        event.time_seconds = after.time
    return found


def _event(kind: str, domain: Domain | None = None, **fields: Any) -> Event:
    assert kind in EVENTS
    event = Event(kind, **fields)
    if domain is not None:
        event.uuid, event.name = domain.uuid, domain.name
    if domain is not None and domain.mark is not None:
        event.policy, event.weight = domain.mark.policy, domain.mark.weight
    return event


def _libvirt(before: State, after: State) -> Iterator[Event]:
    if after.connected and not before.connected:
        yield _event("libvirt-found", uri=after.uri or None)
    elif before.connected and not after.connected:
        yield _event("libvirt-lost", uri=before.uri or None, reason=after.reason or None)


def _backend(before: Part, after: Part) -> Iterator[Event]:
    """An ejection is seen by its count: the scheduler may be back already."""
    counts = before.detail.get("ejections"), after.detail.get("ejections")
    ejected = isinstance(counts[0], int) and isinstance(counts[1], int) and counts[1] > counts[0]
    other = after.name != before.name
    if ejected:
        yield _event("backend-ejected", backend=after.name, reason=after.reason or None)
    elif before.active and (other or not after.active):
        yield _event("backend-unloaded", backend=before.name, reason=None if other else after.reason or None)
    if after.active and (other or ejected or not before.active):
        yield _event("backend-loaded", backend=after.name, reason=after.reason or None)


def _domains(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    same = before.backend.active == after.backend.active and before.undone == after.undone
    same = same and before.refused == after.refused
    if before.state is after.state and before.plan is after.plan and same:
        return  # the usual case, and looking costs more with every guest
    known, there = before.state.domains, after.state.domains
    differ = [
        domain
        for uuid, domain in there.items()
        if uuid not in known or made_of(before, known[uuid]) != made_of(after, domain)
    ]
    for domain in sorted(differ, key=lambda d: (d.name, d.uuid)):
        was = known.get(domain.uuid)
        yield from _mark(was, domain)
        now, then = schedule(after, domain), schedule(before, was) if was else Scheduled()
        if (now.now, now.code) != (then.now, then.code) and not _kind(now) == _kind(then) == "released":
            reason = now.reason or _why_released(domain)
            yield _event(_kind(now), domain, schedule=now.now, reason=reason)
    gone = [domain for uuid, domain in known.items() if uuid not in there]
    for domain in sorted(gone, key=lambda d: (d.name, d.uuid)):
        if _kind(schedule(before, domain)) != "released":
            yield _event("released", domain, reason="the domain is gone")


def _kind(scheduled: Scheduled) -> str:
    """A gang of another mode than it is to be was refused that."""
    return _BY_SCHEDULE.get(scheduled.now, "refused" if scheduled.code else "scheduled")


def _mark(before: Domain | None, after: Domain) -> Iterator[Event]:
    """A domain that is seen for the first time was marked at another time."""
    if before is None or before.mark == after.mark:
        return
    if after.mark is not None:
        yield _event("marked", after)
    elif after.mark_error is None:
        yield _event("unmarked", after)


def _why_released(domain: Domain) -> str | None:
    if not domain.running:
        return "the domain does not run"
    return "the domain is not marked" if domain.mark is None else None
