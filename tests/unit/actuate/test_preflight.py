# SPDX-License-Identifier: Apache-2.0
"""The preflight against kernels that are made of two dictionaries and a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangd.actuate.preflight import KFUNCS, check


class FakeKernel:
    """A kernel's BTF: the types it has, and how many parameters its functions show."""

    def __init__(self, functions: dict[str, int | None] | None = None, sched_ext: bool = True) -> None:
        self.types = {"sched_ext_ops"} if sched_ext else set()
        self.functions = {
            name: count for name, count in {**KFUNCS, **(functions or {})}.items() if count is not None
        }

    def kernel_func_params(self, name: str) -> int | None:
        return self.functions.get(name)

    def kernel_has_type(self, name: str) -> bool:
        return name in self.types


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


def test_every_function_the_scheduler_calls_is_asked_for() -> None:
    """The preflight knows what gang.bpf.c calls, no more and no less."""
    sources = sorted((Path(__file__).parents[3] / "kernel-helper/bpf").glob("gang*.bpf.*"))
    called = {name for path in sources for name in re.findall(r"\b(scx_bpf_\w+)\(", path.read_text())}
    assert called == {name for name in KFUNCS if name.startswith("scx_bpf_")}


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
