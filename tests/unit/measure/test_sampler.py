# SPDX-License-Identifier: Apache-2.0
"""The sampler puts three accounts together and makes nothing up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import GANG, guest
from gangd.measure.probes import GuestCount, VcpuCount
from gangd.measure.sampler import Sampler
from gangd.model.counters import GangStats
from gangd.model.domain import Domain, Vcpu


class FakeProbes:
    """Counts as a test gives them."""

    def __init__(self, **counts: GuestCount) -> None:
        self.counts = counts

    def read(self) -> dict[str, GuestCount]:
        return self.counts


def sampler(root: Path, **counts: GuestCount) -> Sampler:
    return Sampler(FakeProbes(**counts), lambda uuid: GANG if uuid == "web" else None, root)  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def schedstat(root: Path, domain: Domain, vcpu: int, text: str) -> None:
    write(root / f"proc/{domain.pid}/task/{domain.vcpus[vcpu].tid}/schedstat", text)


def test_everything_known(tmp_path: Path) -> None:
    """Counts of the probes, times of /proc and turns of the scheduler meet in one sample."""
    web = guest("web", 1, uuid="web")
    schedstat(tmp_path, web, 1, "3000000000 1000000000 5\n")
    counts = GuestCount(4.0, 3.0, 1.0, {1: VcpuCount({"pause": 2}, 2, 1)})
    found = sampler(tmp_path, web=counts).sample([web])["web"]
    assert (found.run_seconds, found.corun_seconds, found.costop_seconds) == (4.0, 3.0, 1.0)
    assert found.gang == GANG
    first, second = found.vcpus
    assert (first.cpu_seconds, first.exits, first.pause_exits) == (None, None, None)
    assert (second.cpu_seconds, second.run_delay_seconds, second.switches) == (3.0, 1.0, 5)
    assert (second.exits, second.pause_exits, second.lhp_exits) == ({"pause": 2}, 2, 1)


def test_without_probes(tmp_path: Path) -> None:
    """Co-run time is unknown then, not zero."""
    found = sampler(tmp_path).sample([guest("db", 2, uuid="db")])["db"]
    assert (found.run_seconds, found.corun_seconds, found.costop_seconds, found.gang) == (None,) * 4


@pytest.mark.parametrize(
    ("line", "group", "limit", "stat"),
    [
        ("0::/machine/{}/vcpu{}", "machine/{}/vcpu{}", ("cpu.max", "10 20"), "throttled_usec 1500000"),
        ("0::/machine/{}/vcpu{}", "unified/machine/{}", ("cpu.max", "10 20"), "throttled_usec 3000000"),
        ("4:cpu,cpuacct:/{}/vcpu{}", "cpu/{}", ("cpu.cfs_quota_us", "10"), "throttled_time 3000000000"),
    ],
)
def test_sampler_reads_the_throttled_time_of_cpu_max(
    tmp_path: Path, line: str, group: str, limit: tuple[str, str], stat: str
) -> None:
    """The sampler reads the guest's own groups, whichever group around its threads has the limit."""
    web = guest("web", 1, uuid="web")
    for vcpu in web.vcpus:
        schedstat(tmp_path, web, vcpu.index, "3000000000 1000000000 5\n")
        write(tmp_path / f"proc/{web.pid}/task/{vcpu.tid}/cgroup", line.format("web", vcpu.index))
        at = tmp_path / "sys/fs/cgroup" / group.format("web", vcpu.index)
        write(at / limit[0], limit[1])
        write(at / "cpu.stat", f"usage_usec 7\nnr_throttled 3\n{stat}\n")
    assert sum(sampler(tmp_path).sample([web])["web"].throttled.values()) == pytest.approx(3.0)


def test_a_limit_of_two_guests_tells_of_neither(tmp_path: Path) -> None:
    """A group with one guest tells; the sampler reads files only of guests that waited meanwhile."""
    guests = [guest(name, number, uuid=name) for number, name in enumerate(("db", "web"), 1)]
    slice_ = tmp_path / "sys/fs/cgroup/machine"
    for each in guests:
        schedstat(tmp_path, each, 0, "3000000000 1000000000 5\n")
        write(tmp_path / f"proc/{each.pid}/task/{each.vcpus[0].tid}/cgroup", "0::/machine")
    write(slice_ / "cpu.max", "10 20")
    made = sampler(tmp_path)

    def held(*names: str) -> list[float]:
        read = made.sample([each for each in guests if each.uuid in names])
        return [sum(read[name].throttled.values()) for name in names]

    write(slice_ / "cpu.stat", "throttled_usec 1000000\n")
    assert held("web") == [1.0]
    write(slice_ / "cpu.stat", "throttled_usec 2000000\n")
    assert held("web") == [1.0]
    schedstat(tmp_path, guests[1], 0, "1 2000000000 1\n")
    assert held("web") == [2.0]
    assert held("db", "web")[0] == 0.0


def test_totals_never_fall(tmp_path: Path) -> None:
    """The counters of an unplugged vCPU stay in its guest's totals; a vCPU whose thread is not known is not
    gone; a guest that was started anew begins at zero."""
    web = guest("web", 1, uuid="web")
    for vcpu in (0, 1):
        schedstat(tmp_path, web, vcpu, "3000000000 1000000000 5\n")
    counts = GuestCount(4.0, 3.0, 1.0, {v: VcpuCount({"pause": 2}, 2, 1) for v in (0, 1)})
    made = sampler(tmp_path, web=counts)

    def total(domain: Domain) -> tuple[float | None, int | None, object]:
        found = made.sample([domain])["web"].total
        return found.cpu_seconds, found.pause_exits, found.exits

    assert total(web) == (6.0, 4, {"pause": 4})
    assert total(replace(web, vcpus=(web.vcpus[0], Vcpu(1)))) == (None, 4, {"pause": 4})
    assert total(replace(web, vcpus=web.vcpus[:1])) == (6.0, 4, {"pause": 4})
    assert total(replace(web, pid=7, vcpus=(Vcpu(0),))) == (None, 2, {"pause": 2})


def test_only_running_guests(tmp_path: Path) -> None:
    """A guest that is shut off has no sample."""
    assert sampler(tmp_path).sample([guest("off")]) == {}


def test_a_vcpu_without_a_thread(tmp_path: Path) -> None:
    """A vCPU without a thread has unknown times; no other process is asked in its stead."""
    lost = guest("lost", 3, vcpus=1, uuid="lost")
    schedstat(tmp_path, lost, 0, "1 1 1\n")
    headless = Domain("lost", "lost", 3, lost.pid, "running", (Vcpu(0),))
    assert sampler(tmp_path).sample([headless])["lost"].vcpus[0].cpu_seconds is None


def test_a_gang_whose_counters_cannot_be_read_costs_no_other_theirs(tmp_path: Path) -> None:
    def gang_stats(uuid: str) -> GangStats:
        if uuid == "bad":
            raise OSError(5, "Input/output error")
        return GANG

    found = Sampler(FakeProbes(), gang_stats, tmp_path)  # type: ignore[arg-type]
    read = found.sample([guest(name, number, uuid=name) for number, name in enumerate(("bad", "web"), 1)])
    assert (read["bad"].gang, read["web"].gang) == (None, GANG)
    assert found.gangs.reason == "cannot read the counters of gangs: [Errno 5] Input/output error"
    found.sample([guest("web", 2, uuid="web")])
    assert found.gangs.reason == ""
