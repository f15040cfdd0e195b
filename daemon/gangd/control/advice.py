# SPDX-License-Identifier: Apache-2.0
"""`gangctl advise` as a document: what each running guest loses, and whether a mark would help. Pure.

The policy `adaptive` decides that, by the planner, with its own thresholds: a guest would gain if that plan
makes it a gang. The sentences are the policy's, the planner's and those of the schedule in force.
"""

from __future__ import annotations

from typing import NamedTuple

from gangd.control import structs
from gangd.control.documents import chosen, schedule
from gangd.control.schema import CANNOT, GANG, VERDICTS, WOULD_GAIN, WOULD_NOT, finite
from gangd.control.service import Advice
from gangd.errors import NoBackend, NotRunning, NotSupported
from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.plan import Refusal
from gangd.model.snapshot import Snapshot

UNSEEN = Evidence()
NOT_MEASURED = "not measured yet"
TURNS = (Mode.RELAXED, Mode.STRICT)


class Judged(NamedTuple):
    """A verdict of VERDICTS, None = nobody can tell yet; its reason; the code of what stands against it."""

    verdict: str | None
    reason: str | None
    code: str | None = None


def advise(snapshot: Snapshot, advice: Advice, uuid: str | None = None) -> structs.Advise:
    """Return the verdict on one domain, or on all running ones. Raises NotRunning."""
    known = snapshot.state.domains
    if uuid is not None and not (uuid in known and known[uuid].running):
        raise NotRunning("domain is not running")
    found = [d for d in known.values() if d.running and uuid in (None, d.uuid)]
    rows = [_advised(snapshot, advice, domain) for domain in found]
    return structs.Advise(domains=sorted(rows, key=_order))


def _order(row: structs.Advised) -> tuple[object, ...]:
    """The guest that loses most comes first; a verdict or a loss that is unknown comes after those known."""
    rank = len(VERDICTS) if row.verdict is None else VERDICTS.index(row.verdict)
    losses = (row.costop_ratio, row.run_delay_seconds)
    return rank, *((loss is None, -(loss or 0.0)) for loss in losses), row.name, row.uuid


def _advised(snapshot: Snapshot, advice: Advice, domain: Domain) -> structs.Advised:
    evidence = advice.evidence.get(domain.uuid, UNSEEN)
    judged = _judged(snapshot, advice, domain, evidence)
    return structs.Advised(
        uuid=domain.uuid,
        name=domain.name,
        marked=domain.mark is not None,
        chosen=chosen(snapshot, domain.uuid),
        verdict=judged.verdict,
        code=judged.code,
        reason=judged.reason,
        interval_seconds=finite(evidence.seconds) or None,
        corun_ratio=finite(evidence.corun_ratio),
        costop_ratio=finite(evidence.apart_ratio),
        run_delay_seconds=finite(evidence.delay_per_second),
        pause_exits=finite(evidence.pause_per_second),
        lhp_exits=finite(evidence.lhp_per_second),
    )


def _judged(snapshot: Snapshot, advice: Advice, domain: Domain, evidence: Evidence) -> Judged:
    now, why, code = schedule(snapshot, domain)
    planned = advice.planned.get(domain.uuid)
    if now in TURNS:
        return Judged(GANG, why, code)
    if len(domain.vcpus) == 1 and isinstance(planned, Refusal):
        return Judged(WOULD_NOT, planned.reason)
    if code is not None:
        return Judged(CANNOT, why, code)
    if isinstance(planned, Refusal):
        return Judged(CANNOT, planned.reason, "Busy" if domain.busy else "NotPlanned")
    if not (snapshot.backend.usable or snapshot.backend.active):
        return Judged(CANNOT, snapshot.backend.reason, NoBackend.code)
    if planned is None or domain.uuid in advice.unread:
        return Judged(None, NOT_MEASURED)
    if planned.mode is not Mode.OFF:
        return Judged(WOULD_GAIN, planned.reason)
    if not snapshot.backend.fair:
        return Judged(CANNOT, planned.reason, NotSupported.code)
    return Judged(None if evidence.waited_ratio is None else WOULD_NOT, planned.reason)
