# SPDX-License-Identifier: Apache-2.0
"""Can this kernel run the gang scheduler? Answers before anything is loaded, with all that is missing.

Features are asked for, not versions: what is looked up is the running kernel's
own description of itself (BTF) and sysfs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from gangd.bpf.abi import MAX_CPUS
from gangd.model.cpulist import parse_cpulist

WHERE = "Debian has it in 6.16 to 7.3 (trixie-backports; 7.1 not) and 7.2 (forky)"

# kfuncs bpf/gang.bpf.c cannot do without, and how many parameters a well-formed
# one shows. From 7.1 some take a hidden argument; a kernel whose BTF was made by a
# pahole that drops kfunc tags still shows it, and no program can call them.
KFUNCS = {
    "scx_bpf_create_dsq": 2,
    "scx_bpf_dsq_nr_queued": 1,
    "scx_bpf_dsq_insert": 4,
    "scx_bpf_dsq_insert_vtime": 5,
    "scx_bpf_dsq_move_to_local": 1,
    "scx_bpf_select_cpu_dfl": 4,
    "scx_bpf_test_and_clear_cpu_idle": 1,
    "scx_bpf_pick_idle_cpu": 2,
    "scx_bpf_reenqueue_local": 0,
    "scx_bpf_task_cpu": 1,
    "scx_bpf_dump_bstr": 3,
    "bpf_cpumask_test_cpu": 2,
    "bpf_iter_num_new": 3,
    "scx_bpf_dsq_move": 4,
    "scx_bpf_dsq_move_vtime": 4,
    "scx_bpf_dsq_move_set_slice": 2,
    "scx_bpf_dsq_move_set_vtime": 2,
    "bpf_cgroup_ancestor": 2,
    "bpf_cgroup_release": 1,
    "bpf_iter_scx_dsq_new": 3,
    "bpf_iter_scx_dsq_next": 1,
    "bpf_iter_scx_dsq_destroy": 1,
}
# Before 6.13 some had other names, under which the scheduler calls them, too (compat.bpf.h).
FORMER = {
    "scx_bpf_dsq_insert": "scx_bpf_dispatch",
    "scx_bpf_dsq_insert_vtime": "scx_bpf_dispatch_vtime",
    "scx_bpf_dsq_move_to_local": "scx_bpf_consume",
    "scx_bpf_dsq_move": "scx_bpf_dispatch_from_dsq",
    "scx_bpf_dsq_move_vtime": "scx_bpf_dispatch_vtime_from_dsq",
    "scx_bpf_dsq_move_set_slice": "scx_bpf_dispatch_from_dsq_set_slice",
    "scx_bpf_dsq_move_set_vtime": "scx_bpf_dispatch_from_dsq_set_vtime",
}
# How a CPU is made to run what it should: it is kicked and pulls the task, or the task is pushed to it,
# with SCX_ENQ_IMMED, so that one behind a real-time task is not lost there.
KICK = {"scx_bpf_kick_cpu": 2}


QEMU_CONF = Path("etc/libvirt/qemu.conf")
_SCHED_CORE = re.compile(r"^\s*sched_core\s*=\s*[\"']([a-z]+)[\"']", re.MULTILINE)


class KernelBtf(Protocol):
    """The part of `gangd.bpf` that is needed here."""

    def kernel_func_params(self, name: str) -> int | None:
        """Number of parameters of a kernel function, None when there is none."""

    def kernel_func_names(self, name: str) -> list[str] | None:
        """Names of the parameters of a kernel function, None when there is none."""

    def kernel_has_type(self, name: str) -> bool:
        """True if the kernel has a type of that name."""

    def kernel_struct_members(self, name: str) -> list[str] | None:
        """Members of a struct, None when there is none."""

    def kernel_enum_value(self, enum: str, name: str) -> int | None:
        """Value of an enumerator, None when there is none."""

    def __hash__(self) -> int:
        """Answers are remembered: a kernel does not change its mind."""


@dataclass(frozen=True)
class Requirement:
    """A requirement of the scheduler on a host. text: in words. fault: the reason it is not met, else None.

    of_kernel: the fault is not a whole sentence, but the rest of one that begins with "this kernel".
    """

    text: str
    fault: str | None
    of_kernel: bool = False


def check(btf: KernelBtf, root: Path = Path("/")) -> str | None:
    """None when the scheduler can be loaded, else one sentence naming all that is missing."""
    faults = [(need.of_kernel, need.fault) for need in requirements(btf, root) if need.fault]
    kernel = ", and ".join(fault for of_kernel, fault in faults if of_kernel)
    told = [f"this kernel {kernel}; {WHERE}"] if kernel else []
    return "; ".join([*told, *(fault for of_kernel, fault in faults if not of_kernel)]) or None


def requirements(btf: KernelBtf, root: Path = Path("/")) -> list[Requirement]:
    """All that the scheduler needs. A kernel without sched_ext is not asked for the parts of it."""
    return [
        *_of_kernel(btf),
        Requirement("no other scheduler of that kind is loaded", _occupied(root)),
        Requirement("no CPU is isolated with isolcpus=", _isolated(root)),
        Requirement("the scheduler has room for all CPUs", _too_many(root)),
        Requirement("libvirt asks for no core scheduling", _asked_by_libvirt(btf, root)),
    ]


def hangs_beside_cookies(btf: KernelBtf, root: Path = Path("/")) -> bool:
    """True if a process that asks for core scheduling, prctl(PR_SCHED_CORE), may hang this host while any
    scheduler in BPF is loaded: sched-ext/scx issue 3715, on cores of several threads. No released kernel is
    known to be without that fault."""
    smt = _text(root / "sys/devices/system/cpu/smt/active") == "1"
    return smt and _has_cookies(btf)


@cache
def _has_cookies(btf: KernelBtf) -> bool:
    return "core_cookie" in (btf.kernel_struct_members("task_struct") or ())  # CONFIG_SCHED_CORE


@cache
def must_push(btf: KernelBtf) -> bool:
    """True if tasks have to be pushed to CPUs, since no CPU can be kicked."""
    return _fault(btf, KICK) is not None


@cache
def must_be_real_time(btf: KernelBtf) -> bool:
    """True if the kernel moves tasks to the scheduler in the thread that asks for it (decision 27)."""
    return not btf.kernel_has_type("scx_enable_cmd")


@cache
def forgets_preemption(btf: KernelBtf) -> bool:
    """True if a task that is sent to another CPU arrives without SCX_ENQ_PREEMPT.

    enqueue_task_scx() took its flags, 64 bits, as an int; where it does no longer the argument has another
    name.
    """
    return "core_enq_flags" not in (btf.kernel_func_names("enqueue_task_scx") or ())


@cache
def tells_limits(btf: KernelBtf) -> bool:
    """True if the kernel tells a scheduler of cpu.max (since 6.17); else that looks for it, at ticks."""
    return "cgroup_set_bandwidth" in (btf.kernel_struct_members("sched_ext_ops") or ())


@cache
def _shows_limits(btf: KernelBtf) -> bool:
    return "cfs_bandwidth" in (btf.kernel_struct_members("task_group") or ())  # CONFIG_CFS_BANDWIDTH


@cache
def _of_kernel(btf: KernelBtf) -> tuple[Requirement, ...]:
    """The requirements on the kernel, cached: it gains nothing while it runs, a look costs milliseconds."""
    try:
        there = btf.kernel_has_type("sched_ext_ops")
    except OSError as error:
        fault = f"does not describe itself (CONFIG_DEBUG_INFO_BTF): {error.strerror or error}"
        return (Requirement("the kernel describes itself (BTF)", fault, True),)
    no_class = None if there else "was built without sched_ext (CONFIG_SCHED_CLASS_EXT)"
    found = [
        ("the kernel describes itself (BTF)", None),
        ("the kernel has schedulers in BPF", no_class),
    ]
    if there:
        limits = None if tells_limits(btf) or _shows_limits(btf) else "shows no scheduler what cpu.max is"
        found += [
            ("all functions that the scheduler calls are there", _fault(btf, KFUNCS)),
            ("a scheduler can know cpu.max", limits),
            ("CPUs can be kicked, or tasks pushed to them", _neither_kick_nor_push(btf)),
        ]
    return tuple(Requirement(text, fault, True) for text, fault in found)


def _neither_kick_nor_push(btf: KernelBtf) -> str | None:
    fault = _fault(btf, KICK)
    if fault is None or btf.kernel_enum_value("scx_enq_flags", "SCX_ENQ_IMMED") is not None:
        return None
    return f"{fault}, and cannot do without, since it lacks SCX_ENQ_IMMED"


def _fault(btf: KernelBtf, kfuncs: Mapping[str, int]) -> str | None:
    """Return why some of these functions cannot be called, None when all can."""
    found = {name: _parameters(btf, name) for name in kfuncs}
    absent = [f"{name}()" for name, count in found.items() if count is None]
    odd = [
        f"{name}() with {count} parameters instead of {kfuncs[name]}"
        for name, count in found.items()
        if count not in (None, kfuncs[name])
    ]
    faults = [f"lacks the sched_ext function{'s'[: len(absent) > 1]} {', '.join(absent)}"] if absent else []
    if odd:
        them = "them" if len(odd) > 1 else "it"
        faults.append(
            f"describes {', '.join(odd)} (its BTF was made by a pahole older than 1.32), so that no "
            f"scheduler can call {them}"
        )
    return ", and ".join(faults) or None


def _parameters(btf: KernelBtf, name: str) -> int | None:
    """Return how many parameters a function has, under its former name where the kernel has only that."""
    count = btf.kernel_func_params(name)
    return btf.kernel_func_params(FORMER[name]) if count is None and name in FORMER else count


def _occupied(root: Path) -> str | None:
    """Only one sched_ext scheduler can be loaded at a time. The kernel may unload one between two reads, so
    that its state is read last."""
    base = root / "sys/kernel/sched_ext"
    name = _text(base / "root/ops") or "another scheduler"
    if name == "gangd" or _text(base / "state") in (None, "disabled"):
        return None
    return f"the sched_ext scheduler '{name}' is loaded; stop it first"


def _text(path: Path) -> str | None:
    """Return what the kernel shows there; None while it shows nothing."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _asked_by_libvirt(btf: KernelBtf, root: Path) -> str | None:
    """Every guest that libvirt starts asks for it, if its configuration says so; only root may read that."""
    found = _SCHED_CORE.search(_text(root / QEMU_CONF) or "")
    if found is None or found[1] == "none" or not hangs_beside_cookies(btf, root):
        return None
    return (
        f'/{QEMU_CONF} has sched_core = "{found[1]}": core scheduling beside a scheduler in BPF hangs this '
        "host; set it to none and start the guests anew"
    )


def _too_many(root: Path) -> str | None:
    """The scheduler's maps have a fixed size (gang_abi.h)."""
    path = root / "sys/devices/system/cpu/online"
    last = max(parse_cpulist(path.read_text().strip()), default=0) if path.exists() else 0
    if last < MAX_CPUS:
        return None
    return f"the scheduler has room for CPUs 0 to {MAX_CPUS - 1}, and the host has CPU {last}"


def _isolated(root: Path) -> str | None:
    """The kernel refuses sched_ext beside isolcpus= (kernel/sched/ext.c, HK_TYPE_DOMAIN), but neither beside
    its flag managed_irq without `domain`, nor beside a cpuset partition, which this file does not show."""
    path = root / "sys/devices/system/cpu/isolated"
    cpus = path.read_text().strip() if path.exists() else ""
    if not cpus:
        return None
    return (
        f"CPUs {cpus} are isolated with isolcpus=, beside which the kernel refuses sched_ext: boot with "
        f"`nohz_full={cpus} isolcpus=managed_irq,{cpus}` and isolate them by a cpuset partition "
        "(cpuset.cpus.partition=isolated)"
    )
