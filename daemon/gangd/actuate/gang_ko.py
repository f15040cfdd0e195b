# SPDX-License-Identifier: Apache-2.0
"""The backend for kernels without usable sched_ext: gang.ko, told through the ioctls of /dev/gang.

What was set up through the open device goes when it is closed, by whatever
death of this process. The module is loaded on demand and never unloaded: without
a gang it watches nothing.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gangd.actuate.backend import MODES, Backend, LoadFailed
from gangd.actuate.ejection import Ejection
from gangd.actuate.gang_setting import CacheSetting, GangSetting
from gangd.bpf import abi
from gangd.bpf.record import Record
from gangd.errors import GangError, NotSupported
from gangd.model.bandwidth import cpu_limit
from gangd.model.domain import Mode

DEVICE = Path("dev/gang")
NO_STRICT = "a strict gang needs cores to itself, and gang.ko keeps no CPU idle"
IN_USE = "gang.ko boosts the members of the gang whose slot it is"
# Kernels on which gang.ko refuses to be loaded, by what they are configured with.
HARMED = {
    "CONFIG_PREEMPT_RT": "its own threads are real-time tasks as low as boosted vCPUs",
    "CONFIG_RT_GROUP_SCHED": "a boosted vCPU in a group without real-time runtime stands still",
}
MODPROBE_SECONDS = 30.0

R = TypeVar("R", bound=Record)


def backend(root: Path = Path("/")) -> Backend:
    """The module, usable where /dev/gang is, or where modprobe would find a gang.ko for this kernel."""
    return Backend(
        "module",
        lambda: _missing(root),
        lambda: Module(root),
        lambda: IN_USE,
        refuses=lambda mode: NO_STRICT if mode is Mode.STRICT else None,
    )


class Module:
    """/dev/gang, opened. Raises LoadFailed when it cannot be, or speaks another version."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._past: dict[int, abi.GangStats] = {}  # of gangs that were set up anew
        self._caches: dict[int, int] = {}  # by gang
        if not (root / DEVICE).exists():
            _modprobe()
        try:
            self._device = os.open(root / DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LoadFailed(f"cannot open /dev/gang: {error.strerror}", "") from error
        found = self._ask(abi.IOC_VERSION, abi.GangIocVersion()).version
        if found != abi.ABI_VERSION:
            self.close()
            versions = f"gang.ko speaks version {found} and gangd version {abi.ABI_VERSION}"
            raise LoadFailed(f"{versions}: stop gangd, `rmmod gang`, and start gangd again", "")

    def close(self) -> None:
        """Every gang and every cache is gone, every member is what it was, when this returns."""
        if self._device >= 0:
            os.close(self._device)
        self._device = -1

    def descriptors(self) -> tuple[int, ...]:
        """Gangs end with the process that made them."""
        return ()

    def ejected(self) -> Ejection | None:
        """The kernel cannot throw out a module that is in use."""
        return None

    def set_cache(self, index: int, setting: CacheSetting) -> frozenset[int]:
        """Co-schedule over its CPUs; the module takes slots of 1 to 100 ms and rounds others. It makes a
        cache whose CPUs change anew, without gangs."""
        args = abi.GangIocDomain(version=abi.ABI_VERSION, domain=index)
        args.cpus.columns, args.cpus.slot_us = len(setting.cpus), setting.turn_us
        for column, cpu in enumerate(setting.cpus):
            args.cpus.cpu[column] = cpu
            args.cpus.core[column] = column
        past = {number: self.gang_stats(number) for number, home in self._caches.items() if home == index}
        try:
            self._order(abi.IOC_SET_DOMAIN, args, f"set up cache {index}")
        finally:
            lost = frozenset(number for number in past if self._counted(number) is None)
            self._past |= {number: past[number] for number in lost}
        return lost

    def set_gang(self, number: int, setting: GangSetting, columns: dict[int, int]) -> None:
        """Make the members of `setting` gang `number`; `columns` maps CPU to column."""
        if limit := self.limit(setting):
            raise NotSupported(f"gang.ko does not keep cpu.max: {limit}", f"failed to set up gang {number}")
        args = self._gang(number, setting, setting.mode)
        args.seats = len(setting.members)
        for seat, (vcpu, tid, cpu) in zip(args.seat, setting.members, strict=False):
            if cpu not in columns:  # the module refused a change of the cache
                cause = f"CPU {cpu} of vCPU {vcpu} is not in cache {setting.cache} as it is set up"
                raise GangError(cause, f"cannot set up gang {number}")
            seat.tid, seat.column = tid, columns[cpu]
        past, kept = self.gang_stats(number), False
        try:
            self._order(abi.IOC_SET_GANG, args, f"set up gang {number}")
        except GangError:
            kept = self._counted(number) is not None
            raise
        finally:
            if not kept:  # the module counts from zero for a gang that it set up anew
                self._past[number] = past
        self._caches[number] = setting.cache

    def limit(self, setting: GangSetting) -> str | None:
        """The limit on the CPU time of a member, by its own cgroup or one above; None: there is none.

        A boosted thread is real-time, so that CFS bandwidth control does not see it.
        """
        for member in setting.members:
            if found := cpu_limit(self._root, setting.pid, member.tid):
                return found
        return None

    def drop_gang(self, number: int, setting: GangSetting) -> None:
        """Make the members of `setting` ordinary tasks again."""
        self._past[number] = self.gang_stats(number)
        self._caches.pop(number, None)
        self._order(abi.IOC_SET_GANG, self._gang(number, setting, Mode.OFF), f"take out gang {number}")

    def gang_stats(self, number: int) -> abi.GangStats:
        """Counters of one gang since its number was first used here."""
        past, now = self._past.get(number, abi.GangStats()), self._counted(number)
        if now is None:
            return past
        sums = {name: getattr(past, name) + getattr(now, name) for name, _ in abi.GangStats._fields_}
        sums["skew_max_ns"] = max(past.skew_max_ns, now.skew_max_ns)
        return abi.GangStats(**sums)

    def _counted(self, number: int) -> abi.GangStats | None:
        """Counters of a gang since it was set up last, None when the module has no such gang."""
        try:
            return self._ask(abi.IOC_STATS, abi.GangIocStats(version=abi.ABI_VERSION, gang=number)).stats
        except FileNotFoundError:
            return None

    def counters(self) -> dict[str, int]:
        """The module's own account since it was loaded."""
        found = self._ask(abi.IOC_COUNTERS, abi.GangIocCounters(version=abi.ABI_VERSION))
        return {name: getattr(found, name) for name, _ in found._fields_ if name not in ("version", "pad")}

    def histograms(self) -> dict[str, list[int]]:
        """The module keeps none."""
        return {}

    def _gang(self, number: int, setting: GangSetting, mode: Mode) -> abi.GangIocGang:
        args = abi.GangIocGang(version=abi.ABI_VERSION, gang=number, mode=MODES[mode])
        args.domain, args.weight, args.tgid = setting.cache, setting.weight, setting.pid
        return args

    def _ask(self, request: int, args: R) -> R:
        """`args` as the module leaves them. Raises OSError."""
        buffer = bytearray(args.pack())
        fcntl.ioctl(self._device, request, buffer, True)
        ctypes.memmove(ctypes.addressof(args), bytes(buffer), len(buffer))
        return args

    def _order(self, request: int, args: Record, action: str) -> None:
        try:
            self._ask(request, args)
        except OSError as error:
            raise GangError(
                f"gang.ko refused the request: {error.strerror}", f"failed to {action}"
            ) from error


def _missing(root: Path) -> str | None:
    if (root / DEVICE).exists():
        return None
    kernel = root / "proc/sys/kernel/osrelease"
    release = kernel.read_text().strip() if kernel.exists() else ""
    if option := min(_configured(root / "boot" / f"config-{release}"), default=None):
        return f"gang.ko does not work with {option} of this kernel: {HARMED[option]}"
    index = root / "lib/modules" / release / "modules.dep"
    try:
        written = index.stat().st_mtime_ns
    except FileNotFoundError:
        written = 0
    except OSError:  # gangd's unit has ProtectKernelModules=, and that of gangd-dkms loads gang.ko before it
        return "there is no /dev/gang: gang.ko is not loaded"
    if _installed(index, written):
        return None
    return "there is no /dev/gang, and no gang.ko is installed for this kernel"


@lru_cache(maxsize=1)
def _configured(config: Path) -> frozenset[str]:
    """The options of HARMED that a kernel was built with; none where its configuration is not installed."""
    try:
        lines = config.read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(option for option in HARMED if f"{option}=y" in lines)


@lru_cache(maxsize=1)
def _installed(_index: Path, _written: int) -> bool:
    """True if modprobe finds gang.ko. Each reading needs it, so gangd asks anew only once depmod has run."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))  # a user's lacks them
    words = ["modprobe", "-n", "-q", "gang"]
    try:
        found = subprocess.run(words, env={**os.environ, "PATH": path}, check=False, timeout=MODPROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0


def _modprobe() -> None:
    words = ["modprobe", "gang"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MODPROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoadFailed(f"cannot load gang.ko: {error}", "") from error
    if done.returncode:
        raise LoadFailed("cannot load gang.ko: modprobe failed", done.stderr)
