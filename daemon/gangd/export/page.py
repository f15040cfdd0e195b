# SPDX-License-Identifier: Apache-2.0
"""Write a snapshot as the text of /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gangd.export.collector import VCPU_SERIES, families
from gangd.model.snapshot import Snapshot


def render(snapshot: Snapshot, openmetrics: bool = False, vcpu_series: int = VCPU_SERIES) -> tuple[str, str]:
    """Content type and text, in Prometheus' own format or as OpenMetrics; vcpu_series: as of families()."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(snapshot, vcpu_series))
    encoder, content_type = choose_encoder("application/openmetrics-text" if openmetrics else "")
    return content_type, encoder(registry).decode()


class _Once(Collector):
    """A snapshot as what a registry wants; describe() empty, so that registering is free."""

    def __init__(self, snapshot: Snapshot, vcpu_series: int) -> None:
        self.snapshot, self.vcpu_series = snapshot, vcpu_series

    def collect(self) -> list[Metric]:
        return list(families(self.snapshot, self.vcpu_series))

    def describe(self) -> list[Metric]:
        return []
