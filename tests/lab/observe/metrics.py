# SPDX-License-Identifier: Apache-2.0
"""gangd's /metrics, read the way Prometheus would."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lab.observe.figures import Counts

TIMEOUT_SECONDS = 60.0  # eight busy vCPU threads are in the way
_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

COUNTS = {
    "pause_exits": "gangd_kvm_pause_exits_total",
    "lhp_exits": "gangd_kvm_lhp_exits_total",
    "run_seconds": "gangd_domain_run_seconds_total",
    "corun_seconds": "gangd_domain_corun_seconds_total",
    "cpu_seconds": "gangd_vcpu_cpu_seconds_total",
    "run_delay_seconds": "gangd_vcpu_run_delay_seconds_total",
    "switches": "gangd_vcpu_switches_total",
}


@dataclass(frozen=True)
class Sample:
    """A line of the exposition format."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """An answer, and when (monotonic seconds) it came. Parsed when it is asked, not while guests run."""

    time: float
    page: str

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of the page, in its order."""
        return parse(self.page)

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all samples of this name that have these labels; None when there is none."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def guest(self, name: str) -> Counts:
        """A guest's counters, summed over its vCPUs."""
        return Counts(self.time, **{key: self.value(metric, domain=name) for key, metric in COUNTS.items()})


def parse(text: str) -> tuple[Sample, ...]:
    """The samples of a page; comments and anything that is not a sample are left out."""
    found = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if match:
            labels = {key: _unescaped(value) for key, value in _LABEL.findall(match["labels"] or "")}
            found.append(Sample(match["name"], labels, float(match["value"])))
    return tuple(found)


def scrape(address: str) -> Scrape:
    """Fetch http://ADDRESS/metrics. Raises OSError when nothing answers."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page, now = answer.read().decode(), time.monotonic()
    except http.client.HTTPException as error:
        raise OSError(f"no answer from http://{address}/metrics: {error!r}")
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise OSError(f"http://{address}/metrics answered {answer.status} {answer.reason}")
    return Scrape(now, page)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)
