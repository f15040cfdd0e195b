# SPDX-License-Identifier: Apache-2.0
"""What gangd costs while nothing happens: `python3 idle.py [--guests 256] [--vcpus 8] [--seconds 120]`.

Also how long a mark takes from libvirt's answer to the scheduler's order.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from stage import MARK, REPO, Stage, stage

from gangd.model.domain import NAMESPACE

MARKS = 20
SCRAPES = 5


def main() -> int:
    """Print a table and write build/bench/idle.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--guests", type=int, default=256)
    options.add_argument("--vcpus", type=int, default=8)
    options.add_argument("--seconds", type=float, default=120.0)
    args = options.parse_args()
    with stage() as place:
        doms = [place.define(f"guest-{n}", args.vcpus, marked=n >= MARKS) for n in range(args.guests)]
        for dom in doms:
            place.run(dom, args.vcpus)
        say(f"{args.guests} guests of {args.vcpus} vCPUs run, all but {MARKS} are marked")
        begin = time.monotonic()
        place.start()
        first = place.usage()
        say(f"gangd answers after {time.monotonic() - begin:.1f} s; measuring for {args.seconds:.0f} s")
        settled(place)
        found = idle(place, args.seconds) | {"start_cpu_seconds": round(first.cpu_seconds, 2)}
        found |= scrapes(place)
        found |= marks(place, doms[:MARKS])
    for key, value in found.items():
        say(f"{key:24} {value}")
    out = REPO / "build/bench/idle.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"guests": args.guests, "vcpus": args.guests * args.vcpus, **found}, indent=2))
    return 0


def say(text: str) -> None:
    """A line that is there at once."""
    print(text, flush=True)


def settled(place: Stage) -> None:
    """Wait until the scheduler gets no orders any more."""
    orders, last, deadline = place.root / "orders", -1, time.monotonic() + 300
    while not orders.exists() or orders.stat().st_size != last:
        assert place.gangd is not None and place.gangd.poll() is None, place.log()
        assert time.monotonic() < deadline, place.client.status()
        last = orders.stat().st_size if orders.exists() else -1
        time.sleep(5)


def idle(place: Stage, seconds: float) -> dict[str, float]:
    """Share of one CPU in percent, MiB resident."""
    before, begin = place.usage(), time.monotonic()
    time.sleep(seconds)
    after = place.usage()
    share = (after.cpu_seconds - before.cpu_seconds) / (time.monotonic() - begin)
    return {
        "cpu_percent": round(100 * share, 2),
        "rss_mib": round(after.rss / (1 << 20), 1),
        "files": after.files,
        "threads": after.threads,
    }


def scrapes(place: Stage) -> dict[str, float]:
    """What a scrape costs gangd: CPU milliseconds, and KiB of page."""
    before = place.usage()
    pages = [place.client.metrics(False)[1] for _ in range(SCRAPES)]
    cpu = place.usage().cpu_seconds - before.cpu_seconds
    return {"scrape_cpu_ms": round(1000 * cpu / SCRAPES), "scrape_kib": len(pages[-1]) // 1024}


def marks(place: Stage, doms: list) -> dict[str, float]:  # type: ignore[type-arg]
    """Marks by virsh's call and by gangd's; milliseconds until the scheduler has its order."""
    import libvirt

    effects, answers = [], []
    orders = place.root / "orders"
    for number, dom in enumerate(doms):
        size = orders.stat().st_size
        if number % 2:
            begin = time.monotonic()
            place.client.mark(dom.UUIDString(), "relaxed")
            answers.append(1000 * (time.monotonic() - begin))
            continue
        kind, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
        dom.setMetadata(kind, MARK, "gangd", NAMESPACE, flags)
        begin = time.monotonic()
        while orders.stat().st_size == size and time.monotonic() < begin + 30:
            time.sleep(0.001)
        with orders.open() as file:
            file.seek(size)
            told = float(file.readline().split()[0])
        effects.append(1000 * (told - begin))
        time.sleep(1)
    return {
        "mark_effect_ms_median": round(statistics.median(effects), 1),
        "mark_effect_ms_max": round(max(effects), 1),
        "mark_answer_ms_median": round(statistics.median(answers), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
