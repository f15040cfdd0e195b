# SPDX-License-Identifier: Apache-2.0
"""Every query of the dashboards has an answer of a real Prometheus that scrapes the exporter."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tools import dashboards
from fakes import counters, guest, snapshot
from gangd.export.collector import COSTS, SCHEDULER
from gangd.model.domain import Mark
from gangd.model.snapshot import Part, Snapshot
from host.system.scraped import Prometheus, prometheus, served

# Names of series that there are only for a while are asked for in time.
CHOSEN = {"$instance": ".*", "$domain": "web", "$__rate_interval": "1m"}
WEB, BIG = guest("web", 3, mark=Mark()), guest("big", 4, 64, mark=Mark())


def made(page: str) -> list[tuple[str, str]]:
    """Titles and queries of a dashboard."""
    panels = json.loads((dashboards.FOLDER / page).read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]


QUERIES = [(page, *one) for page in ("gangd-hosts.json", "gangd-guest.json") for one in made(page)]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two guests under load: counters grow with time; one of the guests is refused."""
    begin = time.monotonic()

    def now() -> Snapshot:
        passed = 1.0 + time.monotonic() - begin
        detail = dict.fromkeys(
            (*SCHEDULER, *(f"{name}_{end}" for name in COSTS for end in ("ns", "samples"))), 7
        )
        part = Part("sched_ext", True, True, "", detail | {"ejections_stall": 1},
                    {"start_skew": [int(passed * 50), int(passed * 90), int(passed * 2)]})  # fmt: skip
        stats = {one.uuid: counters(one, passed) for one in (WEB, BIG)}
        return snapshot(WEB, BIG, backend=part, stats=stats)

    with served(now) as port, prometheus(tmp_path_factory.mktemp("prometheus"), port) as found:
        yield found


@pytest.mark.parametrize(("page", "title", "query"), QUERIES, ids=[f"{q[0]}: {q[1]}" for q in QUERIES])
def test_a_panel_is_not_empty(asked: Prometheus, page: str, title: str, query: str) -> None:
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    deadline = time.monotonic() + 20
    while all(math.isnan(value) for value in asked.ask(query)):
        assert time.monotonic() < deadline, query
        time.sleep(0.2)


def test_the_files_are_those_of_the_generator() -> None:
    assert {file.name: file.read_text() for file in Path(dashboards.FOLDER).iterdir()} == dashboards.pages()
