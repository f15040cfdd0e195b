# SPDX-License-Identifier: Apache-2.0
"""Families: names, unknown values, duplicates, hostile labels; promtool agrees."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fakes import guest, snapshot
from gangd.errors import InvalidConfig
from gangd.export.collector import SCHEDULER, families
from gangd.export.http import parse, parse_listen
from gangd.export.page import render
from gangd.model.domain import KVM, Mark
from gangd.model.snapshot import DomainStats, Part, Snapshot, VcpuStats

WEB = guest("web", 3, mark=Mark())
SNAP = snapshot(
    WEB,
    guest("db"),
    backend=Part(
        "sched_ext",
        True,
        True,
        "",
        dict.fromkeys(SCHEDULER, 7)
        | {"other": 1, "ejections_stall": 3, "enqueue_ns": 5000, "enqueue_samples": 10},
        {"start_skew": [1, 0, 2]},
    ),
)


def samples(snap: Snapshot) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Every sample as it reads back from the page."""
    text = render(snap)[1]
    return [
        (s.name, tuple(sorted(s.labels.items())), s.value)
        for family in text_string_to_metric_families(text)
        for s in family.samples
    ]


def test_values_read_back() -> None:
    found = {(name, labels): value for name, labels, value in samples(SNAP)}
    vcpu = (("domain", "web"), ("vcpu", "1"))
    assert found["gangd_kvm_pause_exits_total", vcpu] == 10001
    assert found["gangd_kvm_exits_total", (("domain", "web"), ("reason", "hlt"), ("vcpu", "1"))] == 20000
    assert found["gangd_domain_corun_seconds_total", (("domain", "web"),)] == 60
    assert found["gangd_gang_turns_total", (("domain", "web"),)] == 10000
    assert found["gangd_scheduler_turns_total", ()] == 7
    assert found["gangd_scheduler_ejections_by_kind_total", (("kind", "stall"),)] == 3
    assert found["gangd_scheduler_cost_seconds_total", (("operation", "enqueue"),)] == 5e-6
    assert found["gangd_scheduler_cost_samples_total", (("operation", "enqueue"),)] == 10
    info = (("domain", "db"), ("policy", ""), ("source", "libvirt"), ("uuid", guest("db").uuid))
    assert found["gangd_domain_info", info] == 1
    scheduled = [dict(labels) for name, labels in found if name == "gangd_domain_schedule"]
    assert scheduled == [{"domain": "web", "schedule": "relaxed", "code": ""}]


def test_histograms_are_cumulative() -> None:
    """Bucket b of the scheduler ends at 2^b microseconds; the last one has no end."""
    name = "gangd_scheduler_start_skew_seconds_bucket"
    found = [(dict(labels)["le"], value) for sample, labels, value in samples(SNAP) if sample == name]
    assert found == [("1e-06", 1.0), ("2e-06", 1.0), ("+Inf", 3.0)]


def test_promtool_agrees() -> None:
    """`promtool check metrics` has nothing to say, also about hostile names."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for snap in (SNAP, snapshot(), snapshot(guest('a"\n\\\r\0\u202e', 1, mark=Mark('p"\n')))):
        page = render(snap)[1].encode()
        done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_unknown_has_no_sample() -> None:
    snap = replace(SNAP, stats={WEB.uuid: DomainStats(WEB.uuid, (VcpuStats(0), VcpuStats(1, switches=0)))})
    snap = replace(snap, state=replace(snap.state, connected=None), backend=Part("none", False, False, ""))
    found = samples(snap)
    assert [s for s in found if s[0].startswith(("gangd_vcpu_s", "gangd_kvm", "gangd_gang_"))] == [
        ("gangd_vcpu_series_dropped", (), 0.0),
        ("gangd_vcpu_switches_total", (("domain", "web"), ("vcpu", "1")), 0.0),
    ]
    names = {name for name, _, _ in found}
    assert not names & {"gangd_libvirt_connected", "gangd_domain_run_seconds_total"}
    assert not any(name.startswith("gangd_scheduler") for name in names)


def test_guests_have_totals_whatever_became_of_their_vcpus() -> None:
    found = {name: value for name, labels, value in samples(SNAP) if labels == (("domain", "web"),)}
    assert found["gangd_domain_vcpus"] == 2
    assert found["gangd_domain_run_delay_seconds_total"] == found["gangd_domain_ready_seconds_total"] == 25
    assert found["gangd_domain_pause_exits_total"] == 20001
    assert found["gangd_gang_forced_idle_seconds_total"] == 6.25
    hosts = {name: value for name, labels, value in samples(SNAP) if not labels}
    assert hosts["gangd_host_cpus"] == len(SNAP.state.topology.ids)
    assert hosts["gangd_failures"] == hosts["gangd_domains_refused"] == 0


BOUNDS: list[tuple[int, list[str]]] = [(0, []), (14, ["web"]), (27, ["web"]), (28, ["abc", "web"])]


@pytest.mark.parametrize(("most", "shown"), BOUNDS)
def test_series_of_vcpus_are_bounded(most: int, shown: list[str]) -> None:
    """A gang comes first, a guest has all its series or none, and the page says what is left out."""
    snap = snapshot(guest("abc", 1), WEB)  # of two vCPUs each, with two reasons of exits
    found = list(text_string_to_metric_families(render(snap, vcpu_series=most)[1]))
    single = [s for family in found for s in family.samples if "vcpu" in s.labels]
    assert sorted({s.labels["domain"] for s in single}) == shown
    (dropped,) = (f.samples[0].value for f in found if f.name == "gangd_vcpu_series_dropped")
    assert len(single) <= most and len(single) + dropped == 28
    assert {s.labels["domain"] for f in found if f.name == "gangd_domain_exits" for s in f.samples} == {
        "abc",
        "web",
    }


def test_no_series_twice() -> None:
    """Domains that share a name, even one made to look like our way out, stay apart."""
    one, two = guest("x", 1, uuid="u-1"), guest("x", 2, uuid="u-2")
    three = guest("x (u-2)", 3, uuid="u-3")
    four = guest("\ud800", 4, uuid="u-4")
    five = guest("\udfff", 5, uuid="u-5")
    counts = Counter((name, labels) for name, labels, _ in samples(snapshot(one, two, three, four, five)))
    assert max(counts.values()) == 1
    assert sum(name == "gangd_domain_info" for name, _ in counts) == 5


def test_machines_of_anybody_do_not_fill_the_page() -> None:
    """A machine of KVM's that is not measured has no series, whatever its cgroup is called."""
    seen, unseen = (guest(name, pid, source=KVM) for name, pid in (("a.scope", 7), ("b" * 4000, 8)))
    snap = snapshot(seen, unseen)
    found = [labels for _, labels, _ in samples(replace(snap, stats={seen.uuid: snap.stats[seen.uuid]}))]
    assert (("domain", "a.scope"), ("policy", ""), ("source", "kvm"), ("uuid", seen.uuid)) in found
    assert not any("b" * 4000 in dict(labels).values() for labels in found)


@given(st.text(), st.text())
def test_any_label_reads_back(name: str, policy: str) -> None:
    for _, labels, _ in samples(snapshot(guest(name, 1, mark=Mark(policy)))):
        if "uuid" in dict(labels):
            assert dict(labels)["domain"] == name.encode("utf-8", "replace").decode()


def test_names_follow_the_conventions() -> None:
    """Prefix, base units, `_total` on counters and on nothing else, help on all."""
    for family in families(SNAP):
        assert re.fullmatch("gangd_[a-z_]+", family.name) and family.documentation.endswith(".")
        assert not re.search("_(ms|us|ns|kib|percent)(_|$)", family.name)
        assert family.type in ("counter", "gauge", "histogram") and not family.name.endswith("_total")


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("127.0.0.1:9754", ("127.0.0.1", 9754)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("", 80)),
        ("h:65535", ("h", 65535)),
    ],
)
def test_listen(listen: str, found: tuple[str, int]) -> None:
    assert parse_listen(listen) == found


@pytest.mark.parametrize(
    "listen", ["", "9754", "h:", "h:x", "h:65536", "h:-1", "::1:80", "h:²", "h:1\n", "a\0:1"]
)
def test_wrong_listen(listen: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_listen(listen)


@given(st.binary())
def test_parse_raises_nothing_else(head: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse(head)
