# SPDX-License-Identifier: Apache-2.0
"""The cost of gangd on a host of many guests: python3 -m host.scale.idle [--guests 1000] [--vcpus 8] ...

--publish: the result is for docs/results, too.

The script measures it three times on the same guests: with a scheduler, without one, and with one while
libvirt answers nothing about one of them. Each figure has a bound; the exit status is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from gangd.model.domain import NAMESPACE
from host.scale.stage import MARK, REPO, Stage, stage

MARKS = 20
SCRAPES = 5
HOSTS = {"a scheduler": "", "no scheduler": "missing", "one guest hangs": "hung"}


class Row(NamedTuple):
    """A figure and its bound. wanted: at most that much, None = no bound."""

    name: str
    wanted: float | None
    measured: float
    host: str = ""  # of HOSTS

    @property
    def verdict(self) -> str:
        """kept or missed."""
        return "kept" if self.wanted is None or self.measured < self.wanted else "missed"


def main() -> int:
    """Print a table and write build/bench/idle.json; with --publish, docs/results/idle.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--guests", type=int, default=1000)
    options.add_argument("--vcpus", type=int, default=8)
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--publish", action="store_true")
    args = options.parse_args()
    rows: list[Row] = []
    with stage() as place:
        doms = [place.define(f"guest-{n}", args.vcpus, marked=n > MARKS) for n in range(args.guests)]
        for dom in doms:
            place.run(dom, args.vcpus)
        print(f"{args.guests} guests of {args.vcpus} vCPUs run, all but {MARKS + 1} are marked", flush=True)
        for name, fake in HOSTS.items():
            for row in measured(place, doms[1 : MARKS + 1], fake, args.seconds):
                rows.append(row._replace(host=name))
                wanted = "-" if row.wanted is None else f"< {row.wanted:g}"
                print(
                    f"{f'{name}: {row.name}':56} {row.measured:10.2f} {wanted:>8}  {row.verdict}", flush=True
                )
    found = [{**row._asdict(), "verdict": row.verdict} for row in rows]
    document = {
        "date": time.strftime("%F"),
        "guests": args.guests,
        "vcpus": args.guests * args.vcpus,
        "rows": found,
    }
    for folder in ("build/bench", *(("docs/results",) if args.publish else ())):
        (REPO / folder).mkdir(parents=True, exist_ok=True)
        (REPO / folder / "idle.json").write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row.verdict == "missed" for row in rows))


def measured(place: Stage, doms: list[Any], fake: str, seconds: float) -> Iterator[Row]:
    """Measure a life of gangd, in which the guests of `doms` are marked, and are not at its end."""
    for file in place.root.glob("seen-*"):
        file.unlink()
    begin = time.monotonic()
    place.start(fake=fake)
    first = seen(place, "reconcile")
    yield Row("from start to the first answer, s", None, time.monotonic() - begin - first)
    yield Row("first reconcile, s", 5.0, first)
    yield Row("CPU time of the start, s", None, place.usage().cpu_seconds)
    settled(place)
    before, begin = place.usage(), time.monotonic()
    time.sleep(seconds)
    used = place.usage().cpu_seconds - before.cpu_seconds
    yield Row("CPU while nothing happens, percent of one", 2.0, 100 * used / (time.monotonic() - begin))
    yield from scrapes(place)
    yield from marks(place, doms, fake)
    yield Row("longest call of the event loop, ms", 100.0, 1000 * seen(place, "call"))
    print(f"    ({(place.root / 'seen-call').read_text().partition(' ')[2]})")
    yield Row("resident memory, MiB", 150.0, place.usage().rss / (1 << 20))
    begin = time.monotonic()
    place.end_gangd()
    yield Row("stop, s", 5.0, time.monotonic() - begin)
    for dom in doms:
        unmark(dom)


def seen(place: Stage, what: str) -> float:
    """Wait for the time that gangd_on_fakes.py notes, and return it, seconds."""
    file, deadline = place.root / f"seen-{what}", time.monotonic() + 300
    while not file.exists():
        assert time.monotonic() < deadline, place.log()
        time.sleep(0.05)
    return float(file.read_text().split()[0])


def settled(place: Stage) -> None:
    """Wait until gangd is at rest."""
    last, deadline = -1.0, time.monotonic() + 300
    while (used := place.usage().cpu_seconds) - last > 0.2:
        assert place.gangd is not None and place.gangd.poll() is None, place.log()
        assert time.monotonic() < deadline, place.client.status()
        last = used
        time.sleep(5)


def scrapes(place: Stage) -> Iterator[Row]:
    """Yield the cost of a scrape to gangd."""
    before = place.usage()
    pages = [place.client.metrics(False)[1] for _ in range(SCRAPES)]
    cpu = place.usage().cpu_seconds - before.cpu_seconds
    yield Row("CPU of a scrape, ms", None, 1000 * cpu / SCRAPES)
    yield Row("page of a scrape, KiB", None, len(pages[-1]) / 1024)


def marks(place: Stage, doms: list[Any], fake: str) -> Iterator[Row]:
    """Marks by gangd's call and by virsh's; how long until they are answered, and until the scheduler has its
    order."""
    answers, effects = [], []
    for number, dom in enumerate(doms):
        if fake != "missing" and number % 2:
            effects.append(1000 * until_ordered(place, dom))
        else:
            begin = time.monotonic()
            place.client.mark(dom.UUIDString(), "relaxed")
            answers.append(1000 * (time.monotonic() - begin))
        time.sleep(1)
    for name, found in (("a mark by gangctl, answered", answers), ("a mark by virsh, in force", effects)):
        if found:
            yield Row(f"{name}, median ms", 100.0, statistics.median(found))
            yield Row(f"{name}, longest ms", 300.0, max(found))


def until_ordered(place: Stage, dom: Any) -> float:
    """Seconds from a mark by virsh's call to the scheduler's order."""
    import libvirt

    orders = place.root / "orders"
    size = orders.stat().st_size
    kind, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    dom.setMetadata(kind, MARK, "gangd", NAMESPACE, flags)
    begin = time.monotonic()
    while orders.stat().st_size == size and time.monotonic() < begin + 30:
        time.sleep(0.001)
    with orders.open() as file:
        file.seek(size)
        return float(file.readline().split()[0]) - begin


def unmark(dom: Any) -> None:
    """Take the guest's mark away, so that it is as it was."""
    import libvirt

    for flags in (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG):
        try:
            dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, None, None, NAMESPACE, flags)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                raise


if __name__ == "__main__":
    sys.exit(main())
