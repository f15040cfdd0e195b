# SPDX-License-Identifier: Apache-2.0
"""Kernels that are made of two dictionaries and a folder, for what asks them."""

from __future__ import annotations

from pathlib import Path

from gangd.actuate.preflight import KFUNCS, KICK


class FakeKernel:
    """A kernel's BTF: the types it has, how many parameters its functions show, and SCX_ENQ_IMMED."""

    def __init__(
        self, functions: dict[str, int | None] | None = None, sched_ext: bool = True, immed: bool = True
    ) -> None:
        self.types = {"sched_ext_ops"} if sched_ext else set()
        self.immed = 1 << 33 if immed else None
        self.members = ["enqueue", "cgroup_set_bandwidth"]
        self.group = ["css", "cfs_bandwidth"]
        self.task = ["pid"]
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
        found = {"sched_ext_ops": self.members, "task_group": self.group, "task_struct": self.task}
        return found.get(name)

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
