# SPDX-License-Identifier: Apache-2.0
"""The policy of docs/stacks.md for the Kubernetes descheduler, in a real cluster (`make fleet`).

The tests build on each other: a cluster takes ten seconds to start.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import pytest

from host.fleet.cluster import BIN, GUESTS, OTHERS, PROMETHEUS, REPO, Cluster, until

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet")]
GATE = "--feature-gates=EvictionsInBackground=true"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Started for this module, in a network namespace that has nothing else."""
    assert (BIN / "descheduler").exists(), "run `make fleet`: it builds the cluster's programs first"
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.start()
        yield found
    finally:
        found.end()


def documented() -> str:
    """The policy as the page has it, but for the address of Prometheus."""
    page = (REPO / "docs/stacks.md").read_text()
    found = re.search(r"\n((?:    .*\n)*    apiVersion: descheduler/(?:.*\n)(?:    .*\n)+)", page)
    assert found
    return textwrap.dedent(found[1]).replace("http://prometheus:9090", f"http://127.0.0.1:{PROMETHEUS}")


def evicted(log: str) -> list[str]:
    """The pods that a run of the descheduler evicted."""
    return re.findall(r'"Evicted pod" pod="default/([\w-]+)"', log)


def test_a_guest_leaves_the_contended_node(cluster: Cluster) -> None:
    """A pod of a guest goes, no other pod, and comes back on the node where guests do not wait."""
    before = cluster.pods()
    (gone,) = evicted(cluster.deschedule(documented()))
    assert gone.startswith("virt-launcher")

    def is_back() -> bool:
        return "node-b" in {node for name, node in cluster.pods().items() if name not in before}

    until(is_back, "the pod is back, on node-b")


def test_a_silent_node_stops_nothing(cluster: Cluster) -> None:
    """A node whose gangd is down is neither source nor target: guests still leave the contended one. Without
    the query's second half nobody would."""
    cluster.add_node("node-c", "127.77.0.3")
    alone = re.sub(r" or on \(instance\) .* 0\.35\)", "", documented())
    assert alone != documented() and evicted(cluster.deschedule(alone)) == []
    (gone,) = evicted(cluster.deschedule(documented()))
    assert gone.startswith("virt-launcher")


def test_kubevirt_moves_one_guest_and_not_all(cluster: Cluster) -> None:
    """KubeVirt answers an eviction with 429. With the feature gate one guest of the node is asked to go;
    without it the descheduler goes on to the next."""
    until(lambda: len(cluster.pods()) == GUESTS + OTHERS and all(cluster.pods().values()), "all pods run")
    asked = cluster.be_kubevirt()
    cluster.deschedule(documented(), GATE)
    assert len(asked.read_text().split()) == 1
    cluster.deschedule(documented())
    assert len(asked.read_text().split()) > 2
