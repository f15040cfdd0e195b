# SPDX-License-Identifier: Apache-2.0
"""One snapshot as the text of /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gangd.export.collector import families
from gangd.model.snapshot import Snapshot


def render(snapshot: Snapshot, openmetrics: bool = False) -> tuple[str, str]:
    """Content type and text, in Prometheus' own format or as OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(snapshot))
    encoder, content_type = choose_encoder("application/openmetrics-text" if openmetrics else "")
    return content_type, encoder(registry).decode()


class _Once(Collector):
    """One snapshot as what a registry wants; describe() empty, so that registering is free."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def collect(self) -> list[Metric]:
        return list(families(self.snapshot))

    def describe(self) -> list[Metric]:
        return []
