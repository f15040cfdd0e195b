# SPDX-License-Identifier: Apache-2.0
"""The preflight against kernels that are made of two dictionaries and a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangd.actuate.preflight import (
    KFUNCS,
    KICK,
    check,
    forgets_preemption,
    must_be_real_time,
    must_push,
)


class FakeKernel:
    """A kernel's BTF: the types it has, how many parameters its functions show, and SCX_ENQ_IMMED."""

    def __init__(
        self, functions: dict[str, int | None] | None = None, sched_ext: bool = True, immed: bool = True
    ) -> None:
        self.types = {"sched_ext_ops"} if sched_ext else set()
        self.immed = 1 << 33 if immed else None
        self.members = ["enqueue", "cgroup_set_bandwidth"]
        self.arguments = {"enqueue_task_scx": ["rq", "p", "enq_flags"]}
        self.functions = {
            name: count
            for name, count in {**KFUNCS, **KICK, **(functions or {})}.items()
            if count is not None
        }

    def kernel_func_params(self, name: str) -> int | None:
        return self.functions.get(name)

    def kernel_func_names(self, name: str) -> list[str] | None:
        return self.arguments.get(name)

    def kernel_struct_members(self, name: str) -> list[str] | None:
        return self.members if name == "sched_ext_ops" else None

    def kernel_has_type(self, name: str) -> bool:
        return name in self.types

    def kernel_enum_value(self, enum: str, name: str) -> int | None:
        return self.immed if (enum, name) == ("scx_enq_flags", "SCX_ENQ_IMMED") else None


def sysfs(root: Path, state: str | None = None, ops: str | None = None, isolated: str | None = None) -> Path:
    """A host's sysfs as far as the preflight looks."""
    texts = {
        "sys/kernel/sched_ext/state": state,
        "sys/kernel/sched_ext/root/ops": ops,
        "sys/devices/system/cpu/isolated": isolated,
    }
    for path, text in texts.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
    return root


def test_a_whole_kernel_passes(tmp_path: Path) -> None:
    """All kfuncs well-formed, nothing loaded, nothing isolated."""
    assert check(FakeKernel(), sysfs(tmp_path, "disabled", isolated="")) is None
    assert check(FakeKernel(), tmp_path / "empty") is None


def test_a_kernel_that_moves_tasks_itself() -> None:
    """Nobody else has to be real-time for that."""
    kernel = FakeKernel()
    assert must_be_real_time(kernel)
    newer = FakeKernel()
    newer.types.add("scx_enable_cmd")
    assert not must_be_real_time(newer)


def test_a_kernel_that_forgets_who_preempts() -> None:
    """One that does not has another name for what it truncates; one that cannot be asked is taken to."""
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
    assert "6.18" in reason


@pytest.mark.parametrize("name", KFUNCS)
def test_each_function_is_asked_for(tmp_path: Path, name: str) -> None:
    """A function that is absent is named; so is one with a hidden parameter too many."""
    assert f"lacks the sched_ext function {name}()" in (check(FakeKernel({name: None}), tmp_path) or "")
    reason = check(FakeKernel({name: KFUNCS[name] + 1}), tmp_path) or ""
    assert f"{name}() with {KFUNCS[name] + 1} parameters instead of {KFUNCS[name]}" in reason
    assert "pahole" in reason


@pytest.mark.parametrize("shown", [3, None])
def test_a_cpu_that_cannot_be_kicked_is_pushed_to(tmp_path: Path, shown: int | None) -> None:
    """Where the kick cannot be called the scheduler loads all the same, and pushes; elsewhere it does not."""
    kernel = FakeKernel({"scx_bpf_kick_cpu": shown})
    assert check(kernel, tmp_path) is None
    assert must_push(kernel)
    assert not must_push(FakeKernel())
    assert check(FakeKernel(immed=False), tmp_path) is None


def test_neither_kick_nor_push(tmp_path: Path) -> None:
    """One sentence says why neither can be done."""
    reason = check(FakeKernel({"scx_bpf_kick_cpu": 3}, immed=False), tmp_path) or ""
    assert "scx_bpf_kick_cpu() with 3 parameters instead of 2" in reason
    assert "lacks SCX_ENQ_IMMED" in reason


def test_functions_are_asked_for_that_the_scheduler_calls() -> None:
    """All of them, but for one that has a substitute, and no other."""
    folder = Path(__file__).parents[3] / "kernel-helper/bpf"
    texts = [path.read_text() for path in folder.glob("*.bpf.*")]
    called = {name for text in texts for name in re.findall(r"\b(scx_bpf_\w+)\(", text)}
    known = {name for name in {**KFUNCS, **KICK} if name.startswith("scx_bpf_")}
    assert called - {"scx_bpf_task_set_slice"} == known


def test_a_kernel_that_keeps_limits_to_itself(tmp_path: Path) -> None:
    """The scheduler keeps cpu.max of every group, and has to be told of it."""
    older = FakeKernel()
    older.members.remove("cgroup_set_bandwidth")
    assert "tells no scheduler of cpu.max" in (check(older, tmp_path) or "")


def test_another_scheduler_is_in_the_way(tmp_path: Path) -> None:
    """There can be one; who it is gets named, and our own is not in the way."""
    assert "'scx_rusty' is loaded" in (check(FakeKernel(), sysfs(tmp_path, "enabled", "scx_rusty")) or "")
    assert check(FakeKernel(), sysfs(tmp_path, "enabled", "gangd")) is None


def test_a_scheduler_without_a_name(tmp_path: Path) -> None:
    """The kernel may take root/ops away between two reads."""
    assert "'another scheduler' is loaded" in (check(FakeKernel(), sysfs(tmp_path, "disabling")) or "")


def test_isolated_cpus(tmp_path: Path) -> None:
    """The kernel refuses sched_ext beside isolcpus=: said before it does."""
    assert "CPUs 2-3 are isolated" in (check(FakeKernel(), sysfs(tmp_path, "disabled", isolated="2-3")) or "")
