# SPDX-License-Identifier: Apache-2.0
"""The preflight against kernels that are made of two dictionaries and a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gangd.actuate.preflight import (
    FORMER,
    KFUNCS,
    KICK,
    WHERE,
    check,
    forgets_preemption,
    hangs_beside_cookies,
    must_be_real_time,
    must_push,
    requirements,
    tells_limits,
)
from unit.actuate.btf import FakeKernel, sysfs

ISOLATED = (
    "CPUs 2-3 are isolated with isolcpus=, beside which the kernel refuses sched_ext: boot with "
    "`nohz_full=2-3 isolcpus=managed_irq,2-3` and isolate them by a cpuset partition "
    "(cpuset.cpus.partition=isolated)"
)


def test_a_whole_kernel_passes(tmp_path: Path) -> None:
    """All kfuncs well-formed, nothing loaded, nothing isolated."""
    assert check(FakeKernel(), sysfs(tmp_path, "disabled", isolated="")) is None
    assert check(FakeKernel(), tmp_path / "empty") is None


def test_a_kernel_that_moves_tasks_itself() -> None:
    """A loader must be real-time only on a kernel that moves tasks in the thread that loads the scheduler."""
    kernel = FakeKernel()
    assert must_be_real_time(kernel)
    newer = FakeKernel()
    newer.types.add("scx_enable_cmd")
    assert not must_be_real_time(newer)


def test_a_kernel_that_forgets_who_preempts() -> None:
    """A kernel that does not forget has another argument; one that cannot be asked is taken to forget."""
    kernel = FakeKernel()
    assert forgets_preemption(kernel)
    newer = FakeKernel()
    newer.arguments["enqueue_task_scx"] = ["rq", "p", "core_enq_flags"]
    assert not forgets_preemption(newer)
    silent = FakeKernel()
    silent.arguments.clear()
    assert forgets_preemption(silent)


def test_a_kernel_without_the_class(tmp_path: Path) -> None:
    """The sentence names the option, and where Debian has it."""
    reason = check(FakeKernel({"scx_bpf_kick_cpu": None}, sched_ext=False), tmp_path) or ""
    assert "CONFIG_SCHED_CLASS_EXT" in reason
    assert "6.16 to 7.3" in reason


@pytest.mark.parametrize("name", KFUNCS)
def test_each_function_is_asked_for(tmp_path: Path, name: str) -> None:
    """A function that is absent is named; so is one with a hidden parameter too many."""
    assert f"lacks the sched_ext function {name}()" in (check(FakeKernel({name: None}), tmp_path) or "")
    reason = check(FakeKernel({name: KFUNCS[name] + 1}), tmp_path) or ""
    assert f"{name}() with {KFUNCS[name] + 1} parameters instead of {KFUNCS[name]}" in reason
    assert "pahole" in reason


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    """The reason names every fault, so that an operator need not boot one kernel per fault to find them."""
    kernel = FakeKernel({"scx_bpf_create_dsq": None, "scx_bpf_dsq_move": None, "scx_bpf_task_cpu": 2})
    kernel.members.clear()
    kernel.group.clear()
    assert check(kernel, sysfs(tmp_path, "enabled", "scx_rusty", isolated="2-3")) == (
        "this kernel lacks the sched_ext functions scx_bpf_create_dsq(), scx_bpf_dsq_move(), and describes "
        "scx_bpf_task_cpu() with 2 parameters instead of 1 (its BTF was made by a pahole older than 1.32), "
        f"so that no scheduler can call it, and shows no scheduler what cpu.max is; {WHERE}; "
        "the sched_ext scheduler 'scx_rusty' is loaded; stop it first; " + ISOLATED
    )
    assert [need.fault is None for need in requirements(kernel, tmp_path)] == [
        *(True, True, False, False, True),
        *(False, False, True, True),
    ]


def test_a_kernel_that_says_nothing_of_itself(tmp_path: Path) -> None:
    """A kernel without BTF has nothing to ask, and there is no traceback."""

    class Silent(FakeKernel):
        def kernel_has_type(self, name: str) -> bool:
            raise OSError(2, "No such file or directory")

    assert "(CONFIG_DEBUG_INFO_BTF): No such file" in (check(Silent(), tmp_path) or "")


@pytest.mark.parametrize("shown", [3, None])
def test_a_cpu_that_cannot_be_kicked_is_pushed_to(tmp_path: Path, shown: int | None) -> None:
    """The scheduler loads all the same where the kick cannot be called, and pushes; elsewhere it does not."""
    kernel = FakeKernel({"scx_bpf_kick_cpu": shown})
    assert check(kernel, tmp_path) is None
    assert must_push(kernel)
    assert not must_push(FakeKernel())
    assert check(FakeKernel(immed=False), tmp_path) is None


def test_neither_kick_nor_push(tmp_path: Path) -> None:
    """A single sentence says why neither can be done."""
    reason = check(FakeKernel({"scx_bpf_kick_cpu": 3}, immed=False), tmp_path) or ""
    assert "scx_bpf_kick_cpu() with 3 parameters instead of 2" in reason
    assert "lacks SCX_ENQ_IMMED" in reason


def test_functions_are_asked_for_that_the_scheduler_calls() -> None:
    """All of them, but for one that has a substitute, and no other."""
    folder = Path(__file__).parents[3] / "kernel-helper/bpf"
    texts = [path.read_text() for path in folder.rglob("*.bpf.*")]
    called = {name for text in texts for name in re.findall(r"\b(scx_bpf_\w+)\(", text)}
    known = {name for name in {**KFUNCS, **KICK} if name.startswith("scx_bpf_")}
    assert called - {"scx_bpf_task_set_slice", *FORMER.values()} == known


def test_a_kernel_that_keeps_limits_to_itself(tmp_path: Path) -> None:
    """The scheduler keeps cpu.max of every group: it is told of it, or has to see it."""
    older = FakeKernel()
    older.members.remove("cgroup_set_bandwidth")
    assert (check(older, tmp_path), tells_limits(older)) == (None, False)
    silent = FakeKernel()
    silent.members.remove("cgroup_set_bandwidth")
    silent.group.remove("cfs_bandwidth")
    assert "shows no scheduler what cpu.max is" in (check(silent, tmp_path) or "")


def test_another_scheduler_is_in_the_way(tmp_path: Path) -> None:
    """There can be one; who it is gets named, and our own is not in the way."""
    assert "'scx_rusty' is loaded" in (check(FakeKernel(), sysfs(tmp_path, "enabled", "scx_rusty")) or "")
    assert check(FakeKernel(), sysfs(tmp_path, "enabled", "gangd")) is None


def test_a_scheduler_without_a_name(tmp_path: Path) -> None:
    """The kernel may take root/ops away between two reads."""
    assert "'another scheduler' is loaded" in (check(FakeKernel(), sysfs(tmp_path, "disabling")) or "")


@pytest.mark.parametrize("gone", [("root/ops",), ("root/ops", "state")])
def test_a_scheduler_that_goes_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...]
) -> None:
    """The scheduler's files are there when looked for, and fail to be read: no error, and no name either."""
    root = sysfs(tmp_path, "enabled", "scx_rusty")
    read = Path.read_text

    def fails(path: Path, *args: Any, **options: Any) -> str:
        if str(path).endswith(gone):
            raise OSError(19, "No such device")
        return read(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", fails)
    reason = check(FakeKernel(), root)
    assert reason is None if "state" in gone else "'another scheduler' is loaded" in (reason or "")


def test_more_cpus_than_the_maps_have(tmp_path: Path) -> None:
    """The kernel would refuse none of them: loading took half a minute and failed, again and again."""
    root = sysfs(tmp_path, "disabled")
    online = root / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-1023\n")
    assert check(FakeKernel(), root) is None
    online.write_text("0-1023,1500\n")
    assert check(FakeKernel(), root) == "the scheduler has room for CPUs 0 to 1023, and the host has CPU 1500"


def test_isolated_cpus(tmp_path: Path) -> None:
    """The kernel refuses sched_ext beside isolcpus=: preflight says so before, and names the way out."""
    assert check(FakeKernel(), sysfs(tmp_path, "disabled", isolated="2-3")) == ISOLATED


@pytest.mark.parametrize(
    ("line", "smt", "has_cookies", "refuses"),
    [
        ('sched_core = "vcpus"', "1", True, True),
        ("  sched_core='full'  # as before", "1", True, True),
        ('#sched_core = "vcpus"', "1", True, False),
        ('sched_core = "none"', "1", True, False),
        ('sched_core = "vcpus"', "0", True, False),
        ('sched_core = "vcpus"', "1", False, False),
    ],
)
def test_core_scheduling_of_guests(
    tmp_path: Path, line: str, smt: str, has_cookies: bool, refuses: bool
) -> None:
    """A host that a guest's start would hang gets no scheduler: sched-ext/scx issue 3715."""
    kernel = FakeKernel()
    if has_cookies:
        kernel.task.append("core_cookie")
    for path, text in (("sys/devices/system/cpu/smt/active", smt), ("etc/libvirt/qemu.conf", line)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(f'user = "root"\n{text}\n' if "qemu" in path else f"{text}\n")
    fault = check(kernel, tmp_path)
    assert (fault or "").startswith("/etc/libvirt/qemu.conf has sched_core =") is refuses
    assert (fault is not None) is refuses
    assert hangs_beside_cookies(kernel, tmp_path) is (has_cookies and smt == "1")


@pytest.mark.parametrize("name", FORMER)
def test_a_function_under_its_former_name_will_do(tmp_path: Path, name: str) -> None:
    """Before 6.13 the kernel had other names for what moves tasks."""
    older = FakeKernel({name: None, FORMER[name]: KFUNCS[name]})
    assert check(older, tmp_path) is None
