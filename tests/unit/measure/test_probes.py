# SPDX-License-Identifier: Apache-2.0
"""The probes' user-space half, against maps that are dictionaries."""

from __future__ import annotations

import struct
from collections.abc import Container
from pathlib import Path

import pytest

from fakes import guest
from gangd.bpf import abi
from gangd.measure import probes
from gangd.measure.ple import PARAMETERS
from gangd.measure.probes import Probes
from gangd.model.domain import Domain, Vcpu


class FakeMap(dict[bytes, bytes]):
    """A hash map, or an array that has every key."""

    def __init__(self, default: bytes | None = None) -> None:
        super().__init__()
        self.default = default
        self.fail: OSError | None = None

    def lookup(self, key: bytes) -> bytes | None:
        self._may_fail()
        return self.get(key, self.default)

    def _may_fail(self) -> None:
        if self.fail:
            raise self.fail

    def keys(self) -> list[bytes]:  # type: ignore[override]
        return list(super().keys())

    def delete(self, key: bytes) -> bool:
        return self.pop(key, None) is not None

    def update(self, key: bytes, value: bytes) -> None:  # type: ignore[override]
        self._may_fail()
        self[key] = value


class Refused(OSError):
    """Stands in for BpfError."""

    log = "verifier: no"


class FakeObject:
    """A loaded lhp.bpf.o; `made` lists them all."""

    made: list[FakeObject]
    refuse: Container[str] = ()  # programs

    def __init__(self, _path: Path) -> None:
        self.maps = {"vcpus": FakeMap(), "exits": FakeMap(), "guests": FakeMap(abi.LhpGuest().pack())}
        self.autoload: dict[str, bool] = {}
        self.entries: dict[str, int] = {}
        self.attached: list[str] = []
        self.closed = False
        self.made.append(self)

    def set_autoload(self, program: str, on: bool) -> None:
        self.autoload[program] = on

    def set_max_entries(self, name: str, entries: int) -> None:
        self.entries[name] = entries

    def load(self) -> None:
        if any(on and program in self.refuse for program, on in self.autoload.items()):
            raise Refused(1, "Operation not permitted")

    def attach(self, program: str) -> object:
        self.attached.append(program)
        return object()

    def map(self, name: str) -> FakeMap:
        return self.maps[name]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[FakeObject]:
    """The objects the probes load from now on."""
    made: list[FakeObject] = []
    monkeypatch.setattr(FakeObject, "made", made, raising=False)
    monkeypatch.setattr(FakeObject, "refuse", ())

    class FakeBpf:
        Object, BpfError = FakeObject, Refused
        cpus = 2

        @classmethod
        def possible_cpus(cls) -> int:
            return cls.cpus

        @staticmethod
        def object_path(name: str) -> Path:
            return Path(name)

    monkeypatch.setattr(probes, "bpf", FakeBpf)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with the kvm module."""
    (tmp_path / "sys/module/kvm").mkdir(parents=True)
    return tmp_path


def count(bpf: FakeObject, tid: int, **fields: int) -> None:
    """Set the kernel's counters of the thread `tid`."""
    key = struct.pack("=I", tid)
    vcpu = abi.LhpVcpu.unpack(bpf.maps["vcpus"][key])
    for name, value in fields.items():
        setattr(vcpu, name, value)
    bpf.maps["vcpus"][key] = vcpu.pack()


def exits(bpf: FakeObject, number: int, vcpu: int, reason: int, times: int) -> None:
    key = abi.LhpExitKey(guest=number, vcpu=vcpu, isa=2, reason=reason)
    bpf.maps["exits"][key.pack()] = struct.pack("=Q", times)


def test_nothing_is_loaded_without_guests(loaded: list[FakeObject], root: Path) -> None:
    """A shut off guest is none; the reason says so."""
    watcher = Probes(root)
    watcher.sync([guest("off")])
    assert not loaded and not watcher.active
    assert watcher.reason == "no guest runs"
    assert watcher.read() == {}


@pytest.mark.parametrize(("cpus", "vcpus"), [(2, 1024), (64, 2048), (1024, 16384)])
def test_exits_have_room_for_the_host(
    loaded: list[FakeObject], root: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, vcpus: int
) -> None:
    """The map whose index is in memory at once is sized by the host: 32 reasons of each vCPU it may have."""
    monkeypatch.setattr(probes.bpf, "cpus", cpus)
    Probes(root).sync([guest("web", 1)])
    assert loaded[0].entries == {"exits": 32 * vcpus}


def test_watches_the_threads_of_running_guests(loaded: list[FakeObject], root: Path) -> None:
    """Every vCPU thread is registered with its process, guest and number."""
    watcher = Probes(root)
    web = guest("web", 1)
    watcher.sync([web])
    (bpf,) = loaded
    assert bpf.attached == ["on_load", "on_put", "on_rcuwait", "on_task_exit", "on_exit"]
    vcpus = [abi.LhpVcpu.unpack(value) for value in bpf.maps["vcpus"].values()]
    assert [(v.tgid, v.guest, v.vcpu) for v in vcpus] == [(web.pid, 1, 0), (web.pid, 1, 1)]
    assert watcher.active and watcher.reason == ""


def test_reads_counts_by_name(loaded: list[FakeObject], root: Path) -> None:
    """Seconds of the guest, counters of its vCPUs, exits by reason; two reasons of one name are added."""
    watcher = Probes(root)
    watcher.sync([web := guest("web", 1)])
    bpf = loaded[0]
    bpf.maps["guests"].update(struct.pack("=I", 1), abi.LhpGuest(corun_ns=10**9, costop_ns=2 * 10**9).pack())
    count(bpf, 1001, pause_exits=5, lhp_exits=2)
    exits(bpf, 1, 1, 0x77, 5)
    exits(bpf, 1, 1, 0x40, 1)
    exits(bpf, 1, 1, 0x4E, 2)
    found = watcher.read()[web.uuid]
    assert (found.run_seconds, found.corun_seconds, found.costop_seconds) == (3.0, 1.0, 2.0)
    assert found.vcpus[0].exits == {}
    assert found.vcpus[1].exits == {"pause": 5, "exception": 3}
    assert (found.vcpus[1].pause_exits, found.vcpus[1].lhp_exits) == (5, 2)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_without_pause_loop_exiting_pause_exits_are_unknown(
    loaded: list[FakeObject], root: Path, parameter: str
) -> None:
    """Not zero: a guest takes none then, however it spins. What was counted all the same counts."""
    for name in (one for one in PARAMETERS if one.partition("/")[0] == parameter.partition("/")[0]):
        file = root / "sys/module" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("0\n" if name == parameter else "128\n")
    watcher = Probes(root)
    watcher.sync([web := guest("web", 1)])
    exits(loaded[0], 1, 0, 0x4E, 2)
    count(loaded[0], 1001, pause_exits=5)
    first, second = watcher.read()[web.uuid].vcpus.values()
    assert (first.exits, first.pause_exits, first.lhp_exits) == ({"exception": 2}, None, None)
    assert (second.pause_exits, second.lhp_exits) == (5, 0)
    (root / "sys/module" / parameter).write_text("128\n")
    assert watcher.read()[web.uuid].vcpus[0].pause_exits == 0


def test_without_kvm_exits_are_unknown(loaded: list[FakeObject], tmp_path: Path) -> None:
    """Not zero: nobody counts them, and the reason says why; run time is still measured."""
    watcher = Probes(tmp_path)
    watcher.sync([web := guest("web", 1)])
    assert loaded[0].attached == ["on_switch", "on_wakeup", "on_task_exit"]
    assert [program for program, on in loaded[0].autoload.items() if on] == loaded[0].attached
    assert watcher.read()[web.uuid].vcpus[0].pause_exits is None
    assert "kvm module is not loaded" in watcher.reason


def test_where_kvm_tells_of_no_transition_the_scheduler_does(loaded: list[FakeObject], root: Path) -> None:
    """A kvm module without BTF: every switch of the host is looked at then."""
    FakeObject.refuse = ("on_put",)
    watcher = Probes(root)
    watcher.sync([guest("web", 1)])
    assert loaded[0].closed and watcher.active and not watcher.by_kvm
    assert loaded[1].attached == ["on_switch", "on_wakeup", "on_task_exit", "on_exit"]
    assert watcher.reason == ""


def test_the_kvm_module_may_come_later(loaded: list[FakeObject], tmp_path: Path) -> None:
    """The probes are loaded again, with the one that counts exits."""
    watcher = Probes(tmp_path)
    watcher.sync([guest("web", 1)])
    (tmp_path / "sys/module/kvm").mkdir(parents=True)
    watcher.sync([guest("web", 1)])
    assert len(loaded) == 2 and loaded[0].closed
    assert "on_exit" in loaded[1].attached


def test_the_number_of_a_guest_that_left_starts_at_zero(loaded: list[FakeObject], root: Path) -> None:
    """A guest's threads are forgotten and its counters cleared before another guest gets the number."""
    watcher = Probes(root)
    web, db = guest("web", 1), guest("db", 2)
    watcher.sync([web, db])
    bpf = loaded[0]
    for number in (1, 2):
        bpf.maps["guests"].update(struct.pack("=I", number), abi.LhpGuest(costop_ns=10**9).pack())
        exits(bpf, number, 0, 0x77, 3)
    new = guest("new", 3)
    watcher.sync([db, new])
    read = watcher.read()
    assert set(read) == {db.uuid, new.uuid}
    assert read[new.uuid].run_seconds == 0.0 and read[new.uuid].vcpus[0].exits == {}
    assert read[db.uuid].run_seconds == 1.0 and read[db.uuid].vcpus[0].exits == {"pause": 3}
    assert len(bpf.maps["vcpus"]) == 4


def test_a_thread_that_changed_hands(loaded: list[FakeObject], root: Path) -> None:
    """A vCPU that came back with another thread is counted afresh; its sibling keeps its counters."""
    watcher = Probes(root)
    before = guest("web", 1)
    watcher.sync([before])
    count(loaded[0], 1000, pause_exits=7)
    for vcpu in (0, 1):
        exits(loaded[0], 1, vcpu, 0x77, 7)
    after = Domain(before.uuid, "web", 1, before.pid, "running", (Vcpu(0, 1000, 1), Vcpu(1, 4444, 2)))
    watcher.sync([after])
    tids = {struct.unpack("=I", key)[0] for key in loaded[0].maps["vcpus"]}
    assert tids == {1000, 4444}
    assert watcher.read()[before.uuid].vcpus[0].pause_exits == 7
    assert [vcpu.exits for vcpu in watcher.read()[before.uuid].vcpus.values()] == [{"pause": 7}, {}]


def test_unloaded_with_the_last_guest(loaded: list[FakeObject], root: Path) -> None:
    """A host without guests runs no probe of ours."""
    watcher = Probes(root)
    watcher.sync([guest("web", 1)])
    watcher.sync([])
    assert loaded[0].closed and not watcher.active


def test_a_refused_load_is_one_sentence(
    loaded: list[FakeObject], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own log is kept for --verbose, and the daemon goes on without."""
    monkeypatch.setattr(FakeObject, "refuse", probes.PROGRAMS)
    watcher = Probes(root)
    watcher.sync([guest("web", 1)])
    assert not watcher.active and loaded[0].closed
    assert watcher.reason.startswith("the probes cannot be loaded: ")
    assert watcher.log == "verifier: no"
    assert watcher.read() == {}


def test_a_map_that_fails_is_noted_once_and_over_when_it_works(
    loaded: list[FakeObject], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The probes stay loaded and are tried again; the number of a guest that could not be cleared is given to
    nobody else."""
    caplog.set_level("INFO", "gangd")
    watcher, web, new = Probes(root), guest("web", 1), guest("new", 2)
    watcher.sync([web])
    guests = loaded[0].maps["guests"]
    guests.update(struct.pack("=I", 1), abi.LhpGuest(costop_ns=10**9).pack())
    guests.fail = Refused(5, "Input/output error")
    for _ in range(3):
        watcher.sync([new])
        assert watcher.read() == {}
    assert watcher.active and watcher.failing == (
        "cannot watch the threads of guests: [Errno 5] Input/output error; "
        "cannot read the counters of the probes: [Errno 5] Input/output error"
    )
    guests.fail = None
    watcher.sync([new])
    assert watcher.read()[new.uuid].run_seconds == 0.0 and watcher.failing == ""
    assert [(one.levelname, one.getMessage().partition(":")[0]) for one in caplog.records] == [
        ("WARNING", "cannot watch the threads of guests"),
        ("WARNING", "cannot read the counters of the probes"),
        ("INFO", "gangd can watch the threads of guests again"),
        ("INFO", "gangd can read the counters of the probes again"),
    ]
