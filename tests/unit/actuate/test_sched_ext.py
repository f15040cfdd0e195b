# SPDX-License-Identifier: Apache-2.0
"""The orders that gangd gives the BPF scheduler; the lab tests the rest of it."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from fakes import host
from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.actuate.backend import LoadFailed
from gangd.actuate.gang_setting import CacheSetting, GangSetting, Member
from gangd.actuate.sched_ext import NO_STRICT, Scheduler, real_time
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.model.domain import Mode


class FakeMap:
    """A map of the BPF object."""

    fd = 78

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}

    def update(self, key: bytes, value: bytes) -> None:
        self.entries[key] = value

    def delete(self, key: bytes) -> None:
        self.entries.pop(key, None)

    def lookup(self, key: bytes) -> bytes | None:
        return self.entries.get(key)


class FakeObject:
    """A BPF object that loads anywhere. `runs`: the programs that were run, with their arguments. message:
    of the kernel, which ends a scheduler as it is enabled; none: it does not."""

    message = b""

    def __init__(self, path: object) -> None:
        self.constants: dict[str, Any] = {}
        self.maps: defaultdict[str, FakeMap] = defaultdict(FakeMap)
        self.runs: list[tuple[str, bytes]] = []
        self.steps: list[str] = []

    def set_const(self, name: str, value: Any) -> None:
        self.constants[name] = value

    def set_struct_ops(self, *_: object) -> None:
        pass

    def set_autoload(self, name: str, on: bool) -> None:
        self.autoload = name, on

    def attach(self, name: str) -> Mock:
        self.steps.append(name)
        return Mock(fileno=lambda: 77)

    def load(self) -> None:
        self.steps.append("load")

    def close(self) -> None:
        self.steps.append("close")

    def attach_struct_ops(self, _name: str) -> Mock:
        self.steps.append("attach")
        record = abi.GangExitRecord(kind=1025 * bool(self.message), message=self.message)
        for name, value in (("exit_record", record), ("decisions", abi.GangDecisions())):
            self.maps[name].update(struct.pack("=I", 0), value.pack())
        return Mock(fileno=lambda: 76)

    def map(self, name: str) -> FakeMap:
        return self.maps[name]

    def run(self, program: str, args: bytes) -> int:
        self.runs.append((program, args))
        return 0


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> tuple[Scheduler, FakeObject]:
    """A scheduler on two caches of two cores of two threads, on a kernel that moves tasks itself."""
    made: list[FakeObject] = []

    def make(path: object) -> FakeObject:
        made.append(FakeObject(path))
        return made[-1]

    monkeypatch.setattr(bpf, "object_path", Path)
    monkeypatch.setattr(bpf, "Object", make)
    monkeypatch.setattr(bpf, "wait_for_readers", lambda: made[-1].steps.append("wait"))
    monkeypatch.setattr(preflight, "must_push", lambda _: True)
    monkeypatch.setattr(preflight, "must_be_real_time", lambda _: False)
    monkeypatch.setattr(preflight, "forgets_preemption", lambda _: True)
    monkeypatch.setattr(preflight, "hangs_beside_cookies", lambda _: False)
    return Scheduler(host(packages=2), True, lambda: made[-1].steps.append("room")), made[-1]


SETTING = GangSetting(3, (Member(0, 811, 4), Member(1, 812, 5)), Mode.RELAXED, 800)


def test_load_tells_the_scheduler_the_cpus_and_the_kernel(loaded: tuple[Scheduler, FakeObject]) -> None:
    """The scheduler knows every CPU, by cache and by core, and what the kernel and the operator are like."""
    _, kernel = loaded
    cpus = [abi.GangCpuArgs.unpack(args) for _, args in kernel.runs]
    assert [(cpu.cpu, cpu.sibling, cpu.new_cache) for cpu in cpus] == [
        *((0, 0, 1), (4, 1, 0), (1, 0, 0), (5, 1, 0)),
        *((2, 0, 1), (6, 1, 0), (3, 0, 0), (7, 1, 0)),
    ]
    assert {name: kernel.constants[name] for name in ("push", "forgets", "help")} == {
        "push": True,
        "forgets": True,
        "help": True,
    }


def test_readers_end_before_it_is_attached(loaded: tuple[Scheduler, FakeObject]) -> None:
    """A reader of RCU that waits for a CPU holds up the verifier at most, not a scheduler; and a scheduler
    that it replaces runs until all but this is done."""
    assert loaded[1].steps == ["load", "wait", "room", "attach"]


@pytest.mark.usefixtures("loaded")
def test_core_scheduling_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is given core scheduling, where it would hang the host, from before the scheduler is attached
    until the last copy of the descriptors is closed; elsewhere that program is not loaded."""
    made: list[FakeObject] = []
    monkeypatch.setattr(bpf, "Object", lambda path: made.append(FakeObject(path)) or made[-1])
    monkeypatch.setattr(bpf, "wait_for_readers", lambda: None)
    for hangs, steps, descriptors in (
        (True, ["load", "refuse_cookie", "attach"], (76, 77, 78, 78, 78, 78)),
        (False, ["load", "attach"], (76, 78, 78, 78, 78)),
    ):
        monkeypatch.setattr(preflight, "hangs_beside_cookies", lambda _, hangs=hangs: hangs)
        assert Scheduler(host()).descriptors() == descriptors
        assert made[-1].steps == steps and made[-1].autoload == ("refuse_cookie", hangs)
        assert sched_ext.verify() is None
        assert made[-1].steps == [*steps[:-1], "close"]  # it is attached for a moment, and nothing else is


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (b"ops.init_task() failed (-16) for incusd[12]", f"incusd[12] {sched_ext.HANGS}"),
        (b"ops.init_task() failed (-12) for x[12]", "the kernel refused the scheduler: ops.init_task() "),
    ],
)
def test_a_scheduler_that_is_ended_as_it_is_enabled(
    monkeypatch: pytest.MonkeyPatch, message: bytes, cause: str
) -> None:
    """The kernel says yes then, and why not in the record: that is the sentence, and a process that runs
    under core scheduling is named."""
    monkeypatch.setattr(FakeObject, "message", message)
    monkeypatch.setattr(bpf, "wait_for_readers", lambda: None)
    monkeypatch.setattr(bpf, "kernel_enum_value", lambda *_: None)
    with pytest.raises(LoadFailed) as refusal:
        Scheduler(host())
    assert str(refusal.value).startswith(cause)


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the kernel refuse the programs."""

    def load(_self: FakeObject) -> None:
        raise bpf.BpfError(number, "gang: load: no")

    monkeypatch.setattr(FakeObject, "load", load)


def test_a_refused_scheduler_replaces_none(
    loaded: tuple[Scheduler, FakeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier's refusal leaves what was loaded before as it was."""
    refuse(monkeypatch, errno.EINVAL)
    ended = Mock()
    with pytest.raises(LoadFailed, match="the kernel refused the scheduler"):
        Scheduler(host(), False, ended)
    assert not ended.called


@pytest.mark.usefixtures("loaded")
def test_the_verifier_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier says yes, or why not; a caller that may not ask is told apart."""
    assert sched_ext.verify() is None
    refuse(monkeypatch, errno.EINVAL)
    assert "gang: load: no" in (sched_ext.verify() or "")
    refuse(monkeypatch, errno.EPERM)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert sched_ext.verify()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError):
        sched_ext.verify()


def test_turns_have_one_length(loaded: tuple[Scheduler, FakeObject]) -> None:
    """A length is said once, and again when it is another one; no domain has longer turns than 12 ms."""
    scheduler, kernel = loaded
    kernel.runs.clear()
    for index, turn_us in enumerate((30_000, 20_000, 5000, 5000)):
        scheduler.set_cache(index, CacheSetting((0, 1), turn_us))
    scheduler.set_cache(0, CacheSetting((), 5000))
    told = [(program, abi.GangTurnArgs.unpack(args).turn_us) for program, args in kernel.runs]
    assert told == [("set_turns", 12_000), ("set_turns", 5000)]


def test_members_have_no_cpu(loaded: tuple[Scheduler, FakeObject]) -> None:
    """Members have no CPU of their own; what is gone is taken out."""
    scheduler, kernel = loaded
    kernel.runs.clear()
    scheduler.set_gang(2, SETTING, {})
    members = kernel.map("members").entries
    found = [abi.GangMember.unpack(value) for value in members.values()]
    assert [(member.tgid, member.gang, member.vcpu) for member in found] == [(800, 2, 0), (800, 2, 1)]
    scheduler.drop_gang(2, SETTING)
    assert not members
    orders = [abi.GangArgs.unpack(args) for _, args in kernel.runs]
    assert [(one.gang, one.cache, one.caches, one.mode) for one in orders] == [
        (2, 0, 0b1, abi.GangMode.RELAXED),
        (2, 0, 0, abi.GangMode.OFF),
    ]


def test_a_gang_has_turns_in_the_caches_of_its_seats(loaded: tuple[Scheduler, FakeObject]) -> None:
    """In that of most if it fits there; in all if it is wider."""
    scheduler, kernel = loaded
    for cpus, found in (((2, 6, 3, 7), (1, 0b10)), ((0, 2, 6), (1, 0b10)), ((2, 6, 3, 7, 0), (1, 0b11))):
        seats = tuple(Member(vcpu, 811 + vcpu, cpu) for vcpu, cpu in enumerate(cpus))
        scheduler.set_gang(2, replace(SETTING, members=seats), {})
        order = abi.GangArgs.unpack(kernel.runs[-1][1])
        assert (order.cache, order.caches) == found


def test_a_gang_is_set_anew_and_who_is_refused_has_no_members(
    loaded: tuple[Scheduler, FakeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vCPU that was unplugged is no member any more; nobody is one of a gang that is not there."""
    scheduler, kernel = loaded
    members = kernel.map("members").entries
    scheduler.set_gang(2, SETTING, {})
    scheduler.set_gang(2, replace(SETTING, members=(Member(1, 812, 5), Member(2, 813, 4))), {})
    assert sorted(int.from_bytes(tid, "little") for tid in members) == [812, 813]
    monkeypatch.setattr(kernel, "run", lambda *_: -12)
    with pytest.raises(GangError, match=r"BPF program set_gang returned -12 \(ENOMEM\)"):
        scheduler.set_gang(2, SETTING, {})
    assert not members


@pytest.mark.parametrize("pushes", [True, False])
def test_strict_needs_cpus_that_can_be_kicked(monkeypatch: pytest.MonkeyPatch, pushes: bool) -> None:
    """A strict gang that waits idle for its core would not be told without a kick: it is refused."""
    monkeypatch.setattr(preflight, "must_push", lambda _: pushes)
    refuses = sched_ext.backend().refuses
    assert [refuses(mode) for mode in (Mode.STRICT, Mode.RELAXED)] == [NO_STRICT if pushes else None, None]


def test_the_loader_is_real_time_meanwhile() -> None:
    """The loader is what it was before afterwards, whatever happened."""
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.raises(ValueError), real_time():
        assert os.sched_getscheduler(0) == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        raise ValueError
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_load_fails_without_sched_fifo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load fails, because a thread below SCHED_FIFO could hang the host."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(GangError, match=r"SCHED_FIFO, .*: Operation not permitted"), real_time():
        raise AssertionError("it was entered")


def test_all_maps_with_timers_outlive_gangd() -> None:
    """A timer ends with the last process that has its map, so that a restart hands over each of them."""
    source = (Path(__file__).parents[3] / "kernel-helper/bpf/state/maps.bpf.h").read_text()
    unit = (Path(__file__).parents[3] / "systemd/gangd.service").read_text()
    assert tuple(re.findall(r"struct fair_timer\);\n} (\w+) SEC", source)) == sched_ext.TIMERS
    (most,) = re.findall(r"^FileDescriptorStoreMax=(\d+)$", unit, re.MULTILINE)
    assert int(most) > len(sched_ext.TIMERS)
