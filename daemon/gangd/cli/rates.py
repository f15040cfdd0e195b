# SPDX-License-Identifier: Apache-2.0
"""Counters of two moments become rates. Pure."""

from __future__ import annotations

from gangd.control.schema import Document, ratio, shares
from gangd.errors import GangError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# These only grow: they become rates per second. So does all that a gang has but the longest skew; its shares
# are computed afresh.
COUNTERS = ("switches", "exits_total", "pause_exits", "lhp_exits")
TIMES = ("cpu_seconds", "run_delay_seconds", "run_seconds", "corun_seconds", "costop_seconds")
MAXIMA = ("skew_max_seconds",)

# gangd takes two readings at least 0.2 s apart, and tells the time of one to within less than this.
SAME_SECONDS = 0.01


def rates(before: Document, after: Document) -> Document:
    """`after` with every counter replaced by its growth per second since `before`.

    A time becomes seconds per second. What was not there before, or fell
    because it was started anew, is unknown. Raises GangError when the daemon
    did not measure in between.
    """
    elapsed = _elapsed(before, after)
    if elapsed < SAME_SECONDS:
        raise GangError("gangd took no measurement in between; use a longer interval")
    known = {d["uuid"]: d for d in before["domains"]}
    domains = [_domain(known.get(d["uuid"], {}), d, elapsed) for d in after["domains"]]
    return after | {"interval_seconds": elapsed, "domains": domains}


def _elapsed(before: Document, after: Document) -> float:
    """The time between two readings, by the clock that nobody sets; an older gangd does not tell it."""
    then, now = before.get("monotonic_seconds"), after.get("monotonic_seconds")
    if then is None or now is None:
        then, now = before["time_seconds"], after["time_seconds"]
    elapsed: float = now - then
    return elapsed


def _domain(before: Document, after: Document, elapsed: float) -> Document:
    made = _growth(before, after, elapsed)
    made["corun_ratio"] = ratio(made["corun_seconds"], made["run_seconds"])
    vcpus = {(v["vcpu"], v["tid"]): v for v in before.get("vcpus", ())}
    made["vcpus"] = [_vcpu(vcpus.get((v["vcpu"], v["tid"]), {}), v, elapsed) for v in after["vcpus"]]
    if after["gang"]:
        counters = after["gang"].keys() - set(MAXIMA)
        gang = _growth(before.get("gang") or {}, after["gang"], elapsed, counters)
        made["gang"] = gang | shares(gang)
    return made


def _vcpu(before: Document, after: Document, elapsed: float) -> Document:
    made = _growth(before, after, elapsed)
    if after["exits"] is not None:
        known: dict[str, Any] = before.get("exits") or {}
        # A reason never seen before had a count of 0, if anything was counted then.
        start = {reason: known.get(reason, 0 if known else None) for reason in after["exits"]}
        made["exits"] = {k: _rate(start[k], v, elapsed) for k, v in after["exits"].items()}
    return made


def _growth(
    before: Document, after: Document, elapsed: float, counters: Iterable[str] = COUNTERS + TIMES
) -> Document:
    grown = {key: _rate(before.get(key), after[key], elapsed) for key in counters if key in after}
    return after | grown


def _rate(before: float | None, after: float | None, elapsed: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / elapsed
