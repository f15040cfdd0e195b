# SPDX-License-Identifier: Apache-2.0
"""libcgroup on real groups where this machine has v1, and on trees of files for v2 and a host with both."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.actuate.cgroup import Cgroup
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.actuate.libcgroup import Libcgroup
from gangd.actuate.limits import Limits
from gangd.errors import GangError
from gangd.events.threads import guest_cgroups
from gangd.model.domain import Mode
from gangd.model.plan import GangPlan, Placement, Plan

UUID = "11111111-2222-3333-4444-555555555555"
NAME = f"gangd-test-{os.getpid()}"
GUEST = "machine/qemu-1-vm.libvirt-qemu"


def library() -> Libcgroup:
    try:
        return Libcgroup()
    except GangError as error:
        pytest.skip(error.cause)


def mount(controller: str) -> Path | None:
    """Return where v1 has a controller."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and controller in options.split(","):
            return Path(where)
    return None


@pytest.fixture
def guest() -> Iterator[tuple[int, list[Path]]]:
    """A process with a guest's UUID in v1 groups such as libvirt makes, confined to CPU 0: PID, groups."""
    mounts = [mount("cpu"), mount("cpuset")]
    if os.geteuid() != 0 or not all(mounts):
        pytest.skip("needs root and cgroup v1")
    groups = [where / NAME for where in mounts if where]
    code = "import time; print('up', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, "-uuid", UUID], stdout=subprocess.PIPE, text=True)
    try:
        # Between exec and its first instruction a process has no command line, and so no UUID.
        assert process.stdout and process.stdout.readline() == "up\n"
        for group in groups:
            for folder in (group, group / "emulator"):
                folder.mkdir()
                if "cpuset" in group.parent.name:
                    (folder / "cpuset.cpus").write_text("0")
                    (folder / "cpuset.mems").write_text("0")
            (group / "emulator/tasks").write_text(str(process.pid))
        yield process.pid, groups
    finally:
        process.kill()
        process.communicate()
        for group in groups:
            for folder in (group / "emulator", group):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def plan(pid: int, cpu: int) -> Plan:
    places = (Placement(0, None, cpu, "test"),)
    return Plan(gangs=(GangPlan(UUID, "vm", pid, Mode.BALANCE, 0, places, "test", asked=300),))


def test_a_real_group_of_v1(guest: tuple[int, list[Path]], tmp_path: Path) -> None:
    """Shares and cpuset are set, verified and undone; the groups below are left alone."""
    library()
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    pid, (cpu, cpuset) = guest
    assert guest_cgroups(pid, UUID) == {
        **guest_cgroups_of(cpu),
        **guest_cgroups_of(cpuset),
    }
    executor = Executor([Cgroup(guest_cgroups, Limits(True, True))], Journal(tmp_path / "journal"))
    report = executor.reconcile(plan(pid, 1))
    assert (report.writes, report.failures, report.missing) == (2, (), ())
    assert (cpu / "cpu.shares").read_text() == "3072\n"
    assert (cpuset / "cpuset.cpus").read_text() == "0-1\n"
    assert (cpuset / "emulator/cpuset.cpus").read_text() == "0\n"
    assert (cpu / "emulator/cpu.shares").read_text() == "1024\n"
    assert executor.changes(plan(pid, 0)) == [], "wide enough"
    assert executor.undo().undone == 2
    assert (cpu / "cpu.shares").read_text() == "1024\n"
    assert (cpuset / "cpuset.cpus").read_text() == "0\n"


def guest_cgroups_of(group: Path) -> dict[str, str]:
    """The controllers that are mounted together, as /proc/PID/cgroup has them."""
    return dict.fromkeys(
        next(
            line.split(":")[1]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if group.parent.name in line.split(":")[1].split(",")
        ).split(","),
        NAME,
    )


def test_write_reports_the_error_of_the_kernel(guest: tuple[int, list[Path]]) -> None:
    """In cgroup v1 the CPUs of a group must include those of the groups below it."""
    actuator = Cgroup(guest_cgroups, load=library)
    key = f"{UUID}/{guest[0]}/cpuset.cpus"
    with pytest.raises(GangError) as caught:
        actuator.write(key, "4000")
    assert caught.value.lines() == [
        f"failed to set cpuset.cpus of cgroup {NAME} to 4000",
        os.strerror(34) if "range" in caught.value.cause else os.strerror(22),
    ]
    assert actuator.read(key) == "0"


def test_a_guest_that_ended_is_gone(guest: tuple[int, list[Path]]) -> None:
    """A guest that ended has lost its process: it is another's by then, or none's."""
    assert Cgroup(guest_cgroups, load=library).read(f"{UUID}/{os.getpid()}/cpu.shares") is None
    assert Cgroup(guest_cgroups, load=library).read(f"{UUID}/999999999/cpu.shares") is None


def test_a_group_that_is_not_there() -> None:
    """Is a sentence with the kernel's cause."""
    found = library()
    controller = "cpu" if found.version("cpu") else pytest.skip("no cpu controller")
    with pytest.raises(GangError, match="No such file") as caught:
        found.get(controller, f"{NAME}-none", "cpu.shares")
    assert caught.value.action == f"failed to read cpu.shares of cgroup {NAME}-none"
    assert found.version("nonsense") is None


def within(root: Path) -> None:
    """`applied_and_undone` in a process for which `root` is "/"; libcgroup reads that /proc/self/mounts."""
    library()
    code = f"import os, sys; from {__package__} import test_cgroup as test; test.library(); "
    code += "os.chroot(sys.argv[1]); os.chdir('/'); test.applied_and_undone()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(root)], env=environment, check=True)


def tree(root: Path, mounts: str, cgroup: str, files: dict[str, str]) -> None:
    """A host with one guest, process 700."""
    files = {
        "proc/self/mounts": mounts,
        "proc/700/cmdline": f"qemu\0-uuid\0{UUID}\0",
        "proc/700/cgroup": cgroup,
        "proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t1\t1\t1\ncpu\t2\t1\t1\n",
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def applied_and_undone() -> None:
    """The guest gets weight 300 and CPU 2, and has neither in the end. Values of one length: files, unlike
    the kernel's, keep the rest of a longer one."""
    executor = Executor([Cgroup(guest_cgroups, Limits(True, True))], Journal(Path("/journal")))
    report = executor.reconcile(plan(700, 2))
    assert (report.writes, report.failures, report.missing) == (2, (), ()), report
    Path("/during").write_text(" ".join(c.text for c in executor.changes(Plan())))
    assert executor.undo().failures == ()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")


@needs_root
def test_v2(tmp_path: Path) -> None:
    """cgroup v2 has one hierarchy; weights are cpu.weight."""
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    here = f"sys/fs/cgroup/{GUEST}"
    controllers = {f"{path}/cgroup.controllers": "cpuset cpu\n" for path in ("sys/fs/cgroup", here)}
    files = {f"{here}/cpu.weight": "100", f"{here}/cpuset.cpus": "0-1", **controllers}
    tree(tmp_path, mounts, f"0::/{GUEST}/emulator\n", files)
    within(tmp_path)
    assert "cpu.weight" in (tmp_path / "during").read_text()
    assert (tmp_path / here / "cpu.weight").read_text() == "100"
    assert (tmp_path / here / "cpuset.cpus").read_text() == "0-1"


@needs_root
def test_a_host_with_both(tmp_path: Path) -> None:
    """cpu in v1, cpuset in v2: each is found where it is."""
    mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    old, new = f"sys/fs/cgroup/cpu/{GUEST}", f"sys/fs/cgroup/unified/{GUEST}"
    controllers = {f"{path}/cgroup.controllers": "cpuset\n" for path in ("sys/fs/cgroup/unified", new)}
    files = {f"{old}/cpu.shares": "1024", f"{old}/tasks": "", f"{new}/cpuset.cpus": "0-1", **controllers}
    tree(tmp_path, mounts, f"2:cpu:/{GUEST}/emulator\n0::/{GUEST}/emulator\n", files)
    within(tmp_path)
    assert "cpu.shares" in (tmp_path / "during").read_text()
    assert (tmp_path / old / "cpu.shares").read_text() == "1024"
