# SPDX-License-Identifier: Apache-2.0
"""Finding vCPU threads in a tree of files that looks like a host."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gangd.actuate.affinity import Affinity
from gangd.events.proc import Thread, start_time
from gangd.events.threads import (
    around,
    guest_cgroups,
    marked_by_cgroup,
    qemu_pid,
    thread_groups,
    vcpu_room,
    vcpu_threads,
)
from gangd.model.cpulist import parse_cpulist

PID = 700
UUID = "11111111-2222-3333-4444-555555555555"
V2 = "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator"
V1_PATH = "/machine/qemu-1-vm.libvirt-qemu/emulator"
V1 = f"12:cpuset:{V1_PATH}\n3:cpu,cpuacct:{V1_PATH}"


class Host:
    """A root directory with one QEMU process in it."""

    def __init__(self, root: Path, cgroup: str = V2) -> None:
        self.root = root
        self.put("proc/700/cmdline", f"/usr/bin/qemu-system-x86_64\0-name\0guest=vm\0-uuid\0{UUID}\0")
        self.put("proc/700/cgroup", cgroup + "\n")
        self.put("run/libvirt/qemu/vm.pid", f"{PID}\n")
        self.thread(PID, "qemu-system-x86")

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def thread(self, tid: int, comm: str, start: int = 5000) -> None:
        self.put(f"proc/700/task/{tid}/comm", comm + "\n")
        fields = " ".join(str(n) for n in range(4, 22))
        self.put(f"proc/700/task/{tid}/stat", f"{tid} ({comm}) S {fields} {start} 23 24\n")

    def group(
        self, vcpu: int, tids: str, base: str = "sys/fs/cgroup" + V2[3:-9], file: str = "cgroup.threads"
    ) -> None:
        self.put(f"{base}/vcpu{vcpu}/{file}", tids)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def tids(host: Host) -> dict[int, int]:
    return {vcpu: thread.tid for vcpu, thread in vcpu_threads(PID, host.root).items()}


def two_vcpus(host: Host) -> None:
    host.thread(701, "CPU 0/KVM", 5001)
    host.thread(702, "CPU 1/KVM", 5002)


def test_v2_groups(host: Host) -> None:
    two_vcpus(host)
    host.group(0, "701\n")
    host.group(1, "702\n")
    assert vcpu_threads(PID, host.root) == {0: Thread(701, 5001), 1: Thread(702, 5002)}


@pytest.mark.parametrize("mount", ["cpuset", "cpu", "cpu,cpuacct", "cpuacct"])
def test_v1_groups(tmp_path: Path, mount: str) -> None:
    host = Host(tmp_path, V1)
    host.thread(701, "qemu-system-x86")
    host.group(0, "701\n", f"sys/fs/cgroup/{mount}/machine/qemu-1-vm.libvirt-qemu", "tasks")
    assert tids(host) == {0: 701}


def test_hybrid_unified_groups_without_a_libvirt_level(tmp_path: Path) -> None:
    host = Host(
        tmp_path, "5:memory:/machine/qemu-1-vm.libvirt-qemu\n0::/machine/qemu-1-vm.libvirt-qemu/emulator"
    )
    host.thread(701, "CPU 0/TCG")
    host.group(0, "701\n", "sys/fs/cgroup/unified/machine/qemu-1-vm.libvirt-qemu")
    assert tids(host) == {0: 701}


def test_names_alone_when_libvirt_made_no_groups(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/user.slice")
    two_vcpus(host)
    host.thread(703, "CPU 1x/KVM")
    host.thread(704, "IO mon_iothread")
    assert tids(host) == {0: 701, 1: 702}


def test_two_threads_of_one_name_are_nobody(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/")
    two_vcpus(host)
    host.thread(703, "CPU 1/KVM")
    assert tids(host) == {0: 701}


def test_groups_alone_when_threads_have_no_names(host: Host) -> None:
    host.thread(701, "qemu-system-x86")
    host.group(0, "701\n")
    assert tids(host) == {0: 701}


def test_disagreement_leaves_the_vcpus_out(host: Host) -> None:
    two_vcpus(host)
    host.group(0, "702\n")
    host.group(1, "701\n")
    assert tids(host) == {}


def test_a_helper_moved_into_a_vcpu_group_is_not_taken_for_it(host: Host) -> None:
    two_vcpus(host)
    host.thread(703, "worker")
    host.group(0, "701\n703\n")
    host.group(1, "702\n")
    assert tids(host) == {0: 701, 1: 702}


def test_threads_of_another_process_are_ignored(host: Host) -> None:
    two_vcpus(host)
    host.group(0, "9999\n")
    host.group(1, "702\n")
    assert tids(host) == {1: 702}


def test_a_group_path_that_climbs_is_not_followed(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/../../../evil/emulator")
    host.thread(701, "qemu-system-x86")
    host.group(0, "701\n", "evil")
    host.put("sys/fs/cgroup/cgroup.controllers", "")
    assert tids(host) == {}


def test_a_vanished_process_has_no_threads(tmp_path: Path) -> None:
    assert vcpu_threads(PID, tmp_path) == {}
    assert start_time(PID, PID, tmp_path) is None


@pytest.mark.parametrize("comm", ["a b", "x) S 1 2 3", "))((", "(", ") 1 2 3 4 5 6 7 8 9 10 11 12 13"])
def test_start_time_is_field_22_whatever_the_name(host: Host, comm: str) -> None:
    host.thread(701, comm, start=123456)
    assert start_time(PID, 701, host.root) == 123456


def test_start_time_of_a_cut_off_line_is_unknown(host: Host) -> None:
    host.put("proc/700/task/701/stat", "701 (CPU 0/KVM) S 1 2")
    assert start_time(PID, 701, host.root) is None


def test_start_time_of_this_very_thread() -> None:
    assert (start_time(os.getpid(), threading.get_native_id()) or 0) > 0


def test_pid_from_libvirts_file(host: Host) -> None:
    assert qemu_pid("vm", UUID, host.root) == PID


def test_a_stale_pid_file_is_not_believed(host: Host) -> None:
    assert qemu_pid("vm", "99999999-2222-3333-4444-555555555555", host.root) is None


def test_a_uuid_elsewhere_in_the_arguments_does_not_count(host: Host) -> None:
    host.put("proc/700/cmdline", f"sleep\0{UUID}\0-uuid\0x\0")
    assert qemu_pid("vm", UUID, host.root) is None


@pytest.mark.parametrize("text", ["", "x", "-7", "7 8", "٧٠٠", "9" * 30])
def test_a_pid_file_that_holds_no_pid(host: Host, text: str) -> None:
    host.put("run/libvirt/qemu/vm.pid", text)
    assert qemu_pid("vm", UUID, host.root) is None


@pytest.mark.parametrize("name", ["../../../secret", "a/b", "", "..", "a\0b", "x" * 5000, "\udc80"])
def test_hostile_names_lead_nowhere(host: Host, name: str) -> None:
    host.put("secret.pid", f"{PID}\n")
    assert qemu_pid(name, UUID, host.root) is None


@pytest.mark.parametrize("name", ["my vm", "vm\n2", "*", "$(id)", "ü", "-rf", "..."])
def test_odd_names_that_libvirt_allows_are_found(host: Host, name: str) -> None:
    host.put(f"run/libvirt/qemu/{name}.pid", f"{PID}\n")
    assert qemu_pid(name, UUID, host.root) == PID


@pytest.mark.parametrize("folder", ["", ".."])
def test_a_cgroup_is_marked_by_its_attribute(host: Host, folder: str) -> None:
    """user.gang = 1 on the guest's cgroup or on libvirt's below it; any other value is no mark."""
    host.group(0, "701\n")
    group = host.root / ("sys/fs/cgroup" + V2[3:-9]) / folder
    assert not marked_by_cgroup(PID, host.root)
    try:
        os.setxattr(group, "user.gang", b"0")
    except OSError:
        pytest.skip("this file system has no extended attributes for users")
    assert not marked_by_cgroup(PID, host.root)
    os.setxattr(group, "user.gang", b"1\n")
    assert marked_by_cgroup(PID, host.root)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (V2, {"": "machine.slice/machine-qemu\\x2d1\\x2dvm.scope"}),
        ("0::/machine/qemu-1-vm.libvirt-qemu/emulator", {"": "machine/qemu-1-vm.libvirt-qemu"}),
        (V1, dict.fromkeys(["cpuset", "cpu", "cpuacct"], "machine/qemu-1-vm.libvirt-qemu")),
        ("4:memory:/machine/qemu-1-vm.libvirt-qemu\n0::/user.slice", {}),
        ("0::/../../escape/emulator", {}),
    ],
)
def test_cgroups_of_a_guest(tmp_path: Path, lines: str, found: dict[str, str]) -> None:
    """The cgroups are those of the whole guest, without libvirt's own levels, by controller."""
    host = Host(tmp_path, lines)
    assert guest_cgroups(PID, UUID, host.root) == found


def test_cgroups_of_a_process_that_is_not_this_guest(host: Host) -> None:
    """Another guest with its PID, or none: gone."""
    assert guest_cgroups(PID, UUID.replace("1", "2"), host.root) is None
    assert guest_cgroups(PID + 1, UUID, host.root) is None


FILES = {
    "R&D": "R&amp;D.pid",
    "R&amp;D": "R&amp;amp;D.pid",
    "a<b>c": "a&lt;b&gt;c.pid",
    "it's": "it&apos;s.pid",
    'a"b': "a&quot;b.pid",
    "ü☃\t驱动": "ü☃\t驱动.pid",
    "be\x07ll": "bell.pid",
}


@pytest.mark.parametrize("name", FILES)
def test_the_file_of_a_pid_has_the_name_as_libvirt_escapes_it(host: Host, name: str) -> None:
    """The file has the name as text of XML; a guest whose name is the escaped one is another."""
    host.put(f"run/libvirt/qemu/{FILES[name]}", f"{PID}\n")
    assert qemu_pid(name, UUID, host.root) == PID
    other = "R&D" if name == "R&amp;D" else "R&amp;D"
    assert qemu_pid(other, UUID, host.root) is None


SLICE = "sys/fs/cgroup/machine.slice/machine-nort.slice"
SCOPE = "machine.slice/machine-nort.slice/machine-qemu\\x2d1\\x2dvm.scope"
ROOMS = {
    # the cgroup of the process, and where a cpuset says 9-10; what the guest and its vCPU 0 may use
    "the scope": (f"0::/{SCOPE}/libvirt/emulator", f"sys/fs/cgroup/{SCOPE}", "9-10"),
    "a slice": (f"0::/{SCOPE}/libvirt/emulator", SLICE, "9-10"),
    "a slice of slices": (f"0::/{SCOPE}/libvirt/emulator", "sys/fs/cgroup/machine.slice", "9-10"),
    "the slice, without groups of libvirt's": (f"0::/{SCOPE}", SLICE, "9-10"),
    "a service": ("0::/system.slice/libvirtd.service", "sys/fs/cgroup/system.slice/libvirtd.service", "9-10"),
    "v1": ("4:cpuset:/machine/vm/emulator", "sys/fs/cgroup/cpuset/machine", "9-10"),
    "the host": (f"0::/{SCOPE}/libvirt/emulator", "sys/fs/cgroup", ""),
    "another slice": (f"0::/{SCOPE}/libvirt/emulator", "sys/fs/cgroup/machine.slice/other.slice", ""),
}


@pytest.mark.parametrize("name", ROOMS)
def test_the_nearest_cpuset_limits_a_guest_however_far_up(tmp_path: Path, name: str) -> None:
    """For the guest and each of its threads; the root's, which is all CPUs, is no limit."""
    cgroup, folder, room = ROOMS[name]
    host = Host(tmp_path, cgroup)
    host.thread(701, "CPU 0/KVM")
    file = "cpuset.effective_cpus" if name == "v1" else "cpuset.cpus.effective"
    host.put(f"{folder}/{file}", "9-10\n")
    expected = parse_cpulist(room)
    assert around(PID, vcpu_threads(PID, host.root), host.root)[1] == expected
    assert vcpu_room(PID, 0, host.root) == expected
    groups = thread_groups(PID, UUID, host.root)
    assert groups is not None and {group.room for group in groups.values()} == {expected}
    affinity = Affinity(lambda pid, uuid: thread_groups(pid, uuid, host.root), host.root)
    host.put("sys/devices/system/cpu/online", "0-15\n")
    host.put("proc/701/status", f"Name:\tx\nCpus_allowed_list:\t{room or '0-15'}\n")
    assert affinity.read(f"{UUID}/{PID}/vcpu/0") == "all"


@pytest.mark.parametrize(("policy", "real_time"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_real_time_thread_is_told(host: Host, policy: int, real_time: bool) -> None:
    """SCHED_FIFO and SCHED_RR of sched(7), as libvirt's vcpusched sets them."""
    host.thread(701, "CPU 0/KVM")
    fields = [*map(str, range(4, 22)), "5000", *map(str, range(23, 41)), str(policy)]
    host.put("proc/700/task/701/stat", f"701 (CPU 0/KVM) S {' '.join(fields)}\n")
    assert [thread.real_time for thread in vcpu_threads(PID, host.root).values()] == [real_time]
