# SPDX-License-Identifier: Apache-2.0
"""Write a snapshot as a page for people, at `/` of gangd-exporter. Pure. No script, no other file.

A snapshot has totals and no rates, so that every share is one of all that was counted of a guest; the page
says so. Names and reasons are hostile text: `safe` is the one way by which a text comes into the page.
The picture of the last trace is an image of its own within the page, which a browser shows and never runs.
The size is bounded: the page shows the guests that wait most, and says how many it leaves out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gangd.control.documents import Scheduled, schedule
from gangd.control.schema import ratio
from gangd.export.frame import LINKS, document, safe
from gangd.model.domain import Domain
from gangd.model.snapshot import DomainStats, Part, Snapshot
from gangd.trace.kept import NONE, Picture

MOST = 100  # rows of a table, and failures in the list
NAMES = 10  # of guests that have a reason in common
NAME = 64  # characters
MUCH = 0.5  # a guest that waits for more is one of GangdGuestWaits, if it does so for a while

COLUMNS = """<thead><tr><th scope="col">Guest</th><th scope="col">Schedule</th><th scope="col">Policy</th>
<th scope="col" class="number">vCPUs</th>
<th scope="col">Run delay<small>less is better</small></th>
<th scope="col">Co-run<small>more is better</small></th>
<th scope="col">Apart<small>of gangs</small></th></tr></thead>"""
WHY = """<thead><tr><th scope="col">Guests</th><th scope="col">Is</th>
<th scope="col">Because</th></tr></thead>"""
MEANING = """<p class="faint note">Every share is one of all that was counted of a guest: run delay since its
vCPUs started, co-run since gangd's probes saw it, apart since it became a gang. <code>gangctl top</code> and
Prometheus have the shares of the last seconds. Run delay is, of the CPU time that its vCPUs asked for, the
part for which they waited; co-run, of the time in which it ran, the part in which none of its runnable vCPUs
waited; apart, of a gang's CPU time, the part outside its own turns, which harms nobody where nobody waits.
A dash stands where a share is not known, or the guest is no gang.</p>"""
DRAWN = "Lanes of time: the guest that ran on each CPU, whose turn it was, and the guests that waited"


class _Guest(NamedTuple):
    domain: Domain
    scheduled: Scheduled
    policy: str
    vcpus: int
    delay: float | None
    corun: float | None
    apart: float | None


def overview(snapshot: Snapshot, picture: Picture = NONE) -> str:
    """The page, of at most MOST guests, those first that wait most. picture: of the last trace."""
    guests = sorted(_guests(snapshot), key=_worst_first)
    parts = (
        f'<h1>gangd <span class="faint">{safe(snapshot.version, NAME)}</span></h1>{LINKS}',
        _facts(snapshot, guests),
        _troubles(snapshot, guests),
        _table(guests),
        _trace(picture),
    )
    return document("gangd", "\n".join(parts))


def _guests(snapshot: Snapshot) -> Iterable[_Guest]:
    for domain in snapshot.state.domains.values():
        if domain.running:
            yield _guest(snapshot, domain)


def _guest(snapshot: Snapshot, domain: Domain) -> _Guest:
    stats = snapshot.stats.get(domain.uuid) or DomainStats(domain.uuid)
    ran, waited = stats.total.cpu_seconds, stats.total.run_delay_seconds
    wanted = None if ran is None or waited is None else ran + waited
    choice = snapshot.plan.choices.get(domain.uuid)
    gang = stats.gang
    return _Guest(
        domain,
        schedule(snapshot, domain),
        choice.policy if choice else "",
        len(domain.vcpus),
        ratio(waited, wanted),
        ratio(stats.corun_seconds, stats.run_seconds),
        ratio(gang.apart_seconds, gang.run_seconds) if gang else None,
    )


def _worst_first(guest: _Guest) -> tuple[bool, float, str, str]:
    return guest.delay is None, -(guest.delay or 0.0), guest.domain.name, guest.domain.uuid


def _facts(snapshot: Snapshot, guests: Sequence[_Guest]) -> str:
    facts = {
        "Counted": _date(snapshot.time - snapshot.age),
        "Kernel": safe(snapshot.kernel),
        "Scheduler": _part(snapshot.backend),
        "Probes": _part(snapshot.probes),
        "libvirt": _libvirt(snapshot),
        "CPUs": safe(_cpus(snapshot, guests)),
        "Guests": safe(
            f"{len(guests)} running of {len(snapshot.state.domains)} known, "
            f"{len(snapshot.plan.scheduled)} planned as gangs, {len(snapshot.plan.refused)} refused"
        ),
        "gangd itself": safe(_cost(snapshot)),
    }
    return "<dl>" + "\n".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items()) + "</dl>"


def _part(part: Part) -> str:
    said = safe(": ".join(filter(None, (part.name, part.reason))))
    return said if part.active else f'{said} <span class="bad">(not in use)</span>'


def _libvirt(snapshot: Snapshot) -> str:
    state = snapshot.state
    if state.connected is None:
        return "not asked yet"
    if state.connected:
        return f"connected {safe(state.uri)}"
    return f'<span class="bad">does not answer: {safe(state.reason)}</span>'


def _cpus(snapshot: Snapshot, guests: Sequence[_Guest]) -> str:
    online, sold = len(snapshot.state.topology.ids), sum(guest.vcpus for guest in guests)
    over = ratio(float(sold), float(online))
    return f"{online} online, {sold} vCPUs of running guests" + (
        "" if over is None else f": {over:.2f} a CPU"
    )


def _cost(snapshot: Snapshot) -> str:
    own = snapshot.own
    share = ratio(own.cpu_seconds, max(snapshot.time - own.started, 0.0))
    return f"{_percent(share)} of a CPU since it started, {own.rss_bytes / 2**20:.1f} MiB"


def _troubles(snapshot: Snapshot, guests: Sequence[_Guest]) -> str:
    """The failures of gangd, and guests that are not scheduled as they are to be, each with its sentence."""
    failures = [f'<p class="bad">{safe(text)}</p>' for text in snapshot.failures[:MOST]]
    groups = _alike(guests)
    rows = "".join(f"<tr>{_refusal(*group)}</tr>" for group in groups[:MOST])
    table = f'<div class="wide"><table>{WHY}<tbody>{rows}</tbody></table></div>' if rows else ""
    none = (
        "" if rows or failures else "<p>gangd schedules every guest as it is to be, and nothing failed.</p>"
    )
    out = _left_out(len(snapshot.failures), "failures") + _left_out(len(groups), "reasons")
    return f"<h2>Refused and failed</h2>\n{none}{''.join(failures)}{table}{out}"


def _alike(guests: Sequence[_Guest]) -> list[tuple[Scheduled, list[str]]]:
    """The names of guests that are not scheduled as they are to be, by why; the reason of most comes first.

    A cause on the host refuses many guests alike: a row for each would hide the other reasons.
    """
    found: dict[Scheduled, list[str]] = {}
    for guest in guests:
        if guest.scheduled.code:
            found.setdefault(guest.scheduled, []).append(guest.domain.name)
    groups = [(why, sorted(names)) for why, names in found.items()]
    return sorted(groups, key=lambda group: (-len(group[1]), group[1]))


def _refusal(why: Scheduled, names: Sequence[str]) -> str:
    shown = ", ".join(safe(name, NAME) for name in names[:NAMES])
    more = f"<small>and {len(names) - NAMES} more</small>" if len(names) > NAMES else ""
    return (
        f'<th scope="row">{shown}{more}</th><td>{safe(why.now or "")}</td>'
        f"<td>{safe(why.reason or '')}<small>{safe(why.code or '')}</small></td>"
    )


def _table(guests: Sequence[_Guest]) -> str:
    waiting = sum((guest.delay or 0.0) > MUCH for guest in guests)
    half = "waited for more than half of the CPU time that they asked for"
    said = f"<p>{waiting} of {len(guests)} running guests {half}.</p>"
    rows = "\n".join(map(_row, guests[:MOST]))
    table = f'<div class="wide"><table>{COLUMNS}\n<tbody>{rows}</tbody></table></div>' if rows else ""
    head, out = "<h2>Guests, those first that wait most</h2>", _left_out(len(guests), "guests")
    return f"{head}\n{said}\n{table}{out}{MEANING}"


def _row(guest: _Guest) -> str:
    now, reason, _ = guest.scheduled
    why = f"<small>{safe(reason)}</small>" if reason else ""
    return (
        f'<tr><th scope="row">{safe(guest.domain.name, NAME)}</th><td>{safe(now or "not by gangd")}{why}</td>'
        f'<td>{safe(guest.policy, NAME)}</td><td class="number">{guest.vcpus}</td>'
        f"{_bar(guest.delay, 'less')}{_bar(guest.corun, 'more')}{_bar(guest.apart, 'either')}</tr>"
    )


def _bar(share: float | None, kind: str) -> str:
    """A cell with the share as a number and as a bar, neither where the share is not known."""
    if share is None:
        return '<td class="faint">-</td>'
    width = min(max(share, 0.0), 1.0) * 100
    return (
        f'<td>{_percent(share)}<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="8"/><rect class="{kind}" width="{width:.1f}" height="8"/>'
        "</svg></td>"
    )


def _trace(picture: Picture) -> str:
    """The picture in an <img>: whatever is in it, a browser runs and loads nothing for one."""
    if picture.reason:
        said = f'<p class="bad">{safe(picture.reason)}</p>'
    elif not picture.svg:
        said = "<p>None is kept: <code>gangctl trace</code>, as root, records one.</p>"
    else:
        source = f"data:image/svg+xml;base64,{b64encode(picture.svg).decode()}"
        said = (
            f"<p>Recorded {_date(picture.recorded)}; the next <code>gangctl trace</code> replaces it.</p>"
            f'<div class="wide picture"><img src="{source}" alt="{DRAWN}"></div>'
        )
    return f"<h2>The last trace</h2>\n{said}"


def _date(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"


def _left_out(count: int, of: str) -> str:
    return f'<p class="faint">{count - MOST} more {of} are left out.</p>' if count > MOST else ""
