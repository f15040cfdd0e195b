# SPDX-License-Identifier: Apache-2.0
"""Guests start, are marked, and end, again and again: gangd must not grow.

usage: python3 -m host.scale.churn [--cycles 1000] [--minutes 60]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from typing import Any

from gangd.model.domain import NAMESPACE
from host.scale.stage import MARK, REPO, Stage, stage

GUESTS = 20
SEED = 4
LOOKS = 20  # at memory and files in each part
GROWTH = 1.05  # of memory and threads, from the second quarter's median to the last one's


def main() -> int:
    """Print a table and write build/bench/churn.json; 1 when gangd grew."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cycles", type=int, default=1000)
    options.add_argument("--minutes", type=float, default=60.0)
    args = options.parse_args()
    parts: dict[str, list[dict[str, float]]] = {}
    with stage() as place:
        doms = [place.define(f"guest-{number}", 2, marked=number % 2 == 0) for number in range(GUESTS)]
        place.start("[scheduler]\nmoves_per_minute = 10000\n")
        parts["cycles"] = cycles(place, doms, args.cycles)
        parts["churn"] = churn(place, doms, 60 * args.minutes)
        assert place.gangd is not None and place.gangd.poll() is None, "gangd ended"
        log = place.log()
    traces = log.count("Traceback")
    grown = [name for name, looks in parts.items() if not flat(looks)]
    print(f"tracebacks in the log: {traces}; grown in: {', '.join(grown) or 'no part'}")
    out = REPO / "build/bench/churn.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"tracebacks": traces, "grown": grown, **parts}, indent=2))
    return 1 if grown or traces else 0


def cycles(place: Stage, doms: list[Any], count: int) -> list[dict[str, float]]:
    """Start and end one guest after the other, each as soon as gangd can know of it."""
    looks = []
    for number in range(count):
        dom = doms[number % len(doms)]
        place.run(dom)
        time.sleep(0.01 * (number % 7))  # before, while and after gangd acts on it
        place.end(dom)
        if number % max(count // LOOKS, 1) == 0:
            looks.append(look(place, f"{number} starts and stops"))
    return [*looks, look(place, f"{count} starts and stops")]


def churn(place: Stage, doms: list[Any], seconds: float) -> list[dict[str, float]]:
    """Run, end, mark, unmark, change and read guests at random, for `seconds`; return the looks meanwhile."""
    import libvirt

    chance = random.Random(SEED)
    running: list[Any] = []
    begin = time.monotonic()
    looks, due = [], 0.0
    while (passed := time.monotonic() - begin) < seconds:
        idle = [dom for dom in doms if dom not in running]
        deed = chance.choice(("run", "end", "mark", "unmark", "change", "read"))
        if deed == "run" and idle:
            running.append(chance.choice(idle))
            place.run(running[-1])
        elif deed == "end" and running:
            place.end(running.pop(chance.randrange(len(running))))
        elif deed in ("mark", "unmark"):
            kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
            chance.choice(doms).setMetadata(kind, MARK if deed == "mark" else None, "gangd", NAMESPACE, 0)
        elif deed == "change" and running:
            dom = chance.choice(running)
            place.client.mark(dom.UUIDString(), "relaxed", weight=chance.randrange(1, 500))
        elif deed == "read":
            place.client.stats()
            place.client.plan()
        time.sleep(chance.random() / 5)
        if passed >= due:
            looks.append(look(place, f"{passed / 60:.0f} minutes of churn"))
            due = passed + seconds / LOOKS
    for dom in running:
        place.end(dom)
    return [*looks, look(place, f"{seconds / 60:.0f} minutes of churn")]


def look(place: Stage, when: str) -> dict[str, float]:
    """Memory and files now; printed."""
    now = place.usage()
    print(f"{when:28} {now.rss / (1 << 20):7.1f} MiB {now.files:4} files {now.threads:3} threads", flush=True)
    return {"rss": now.rss, "files": now.files, "threads": now.threads}


def flat(looks: list[dict[str, float]]) -> bool:
    """The last quarter's median against that of the second one: the first fills caches."""
    quarter = max(len(looks) // 4, 1)
    early, late = looks[quarter : 2 * quarter] or looks, looks[-quarter:]

    def grown(key: str) -> float:
        return statistics.median(x[key] for x in late) / statistics.median(x[key] for x in early)

    return grown("rss") <= GROWTH and grown("files") <= 1.0 and grown("threads") <= GROWTH


if __name__ == "__main__":
    sys.exit(main())
