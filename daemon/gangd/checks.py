# SPDX-License-Identifier: Apache-2.0
"""Can gangs be scheduled on this host? Looked at from outside, with or without a gangd, by anybody.

Every check reads files below a root and changes nothing: none connects to a socket, since systemd would start
what it listens for there. A file that only root may read leaves its check without a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gangd import bpf
from gangd.actuate import gang_ko, preflight, sched_ext
from gangd.actuate.preflight import KernelBtf
from gangd.measure import ple
from gangd.model.topology import Topology

Result = Literal["pass", "warn", "fail"]

SOCKETS = ("virtqemud-sock", "libvirt-sock")  # of the modular daemon, of the monolithic one
Verify = Callable[[], str | None]  # None, or the verifier's refusal; raises PermissionError
_LISTENING = "00010000"  # __SO_ACCEPTCON among the flags of /proc/net/unix
_MODULE = ("gang.ko", "the module is installed for this kernel")
_TRACEFS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")


@dataclass(frozen=True)
class Check:
    """about: the part of the host. text: what should be so. result: None when it could not be seen.
    detail: what was found, or why nothing was. hint: what to do about it."""

    about: str
    text: str
    result: Result | None
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Verdict:
    """backend: what would schedule gangs, "sched_ext" or "module"; None when nothing can."""

    checks: tuple[Check, ...]
    backend: str | None

    @property
    def schedulable(self) -> bool:
        """Gangs can be scheduled on this host."""
        return self.backend is not None and all(check.result != "fail" for check in self.checks)


def of_this_host() -> Verdict:
    """All checks of the host that this runs on, whose kernel's verifier is asked, too."""
    return verdict(verify=sched_ext.verify)


def verdict(root: Path = Path("/"), btf: KernelBtf = bpf, verify: Verify | None = None) -> Verdict:
    """All checks of the host below `root`, whose kernel `btf` describes. verify: asks its verifier; None: it
    is another host's, or nobody asks.

    gang.ko is looked for where sched_ext cannot be used. If it stands in, faults of sched_ext are warnings.
    """
    kernel = _seen("sched_ext", "the scheduler can be loaded", lambda: _sched_ext(root, btf, verify))
    backend: str | None = "sched_ext"
    if any(check.result in ("fail", None) for check in kernel):
        found = _seen(*_MODULE, lambda: [_module(root)])
        backend = "module" if found[0].result == "pass" else None
        if backend:
            kernel = [replace(c, result="warn") if c.result == "fail" else c for c in kernel]
        kernel += found
    before = [check for args in _BEFORE for check in _seen_one(*args, root)]
    after = [check for args in _AFTER for check in _seen_one(*args, root)]
    return Verdict((*before, *kernel, *after), backend)


def _seen_one(about: str, text: str, look: Callable[[Path, Check], Check], root: Path) -> list[Check]:
    return _seen(about, text, lambda: [look(root, Check(about, text, "pass"))])


def _seen(about: str, text: str, look: Callable[[], list[Check]]) -> list[Check]:
    """The checks that `look` returns; one check without a result, with the cause, if it cannot look."""
    try:
        return look()
    except PermissionError as error:
        return [Check(about, text, None, f"cannot read {error.filename}: only root may")]
    except (OSError, ValueError) as error:
        return [Check(about, text, None, f"cannot look: {error}")]


def _text(path: Path) -> str | None:
    """A file's contents, None where there is none. Raises OSError where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _there(path: Path) -> bool:
    """Unlike Path.exists() it raises PermissionError where nobody but root can tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _kvm(root: Path, good: Check) -> Check:
    if _there(root / "sys/class/misc/kvm"):
        return good
    info = _text(root / "proc/cpuinfo") or ""
    flags = next((line.split() for line in info.splitlines() if line.startswith("flags")), None)
    vendor = {"vmx": "kvm_intel", "svm": "kvm_amd"}
    names = [name for flag, name in vendor.items() if flag in (flags or ())]
    if flags is not None and not names:
        return replace(
            good,
            result="fail",
            detail="the CPUs show neither vmx nor svm",
            hint="switch virtualization on in the firmware; of a virtual machine, nested virtualization",
        )
    hint = f"modprobe {names[0]}; the kernel's log says why if it fails" if names else "load it"
    return replace(good, result="fail", detail="KVM is not loaded", hint=hint)


def _ple(root: Path, good: Check) -> Check:
    if not any(_there(root / "sys/module" / name) for name in ple.PARAMETERS):
        return replace(good, result=None, detail="KVM does not say")
    if not ple.switched_off(root):
        return good
    names = ", ".join(name.replace("/parameters/", ".") for name in ple.PARAMETERS)
    return replace(
        good,
        result="warn",
        detail="pause-loop exiting is off in KVM, so policies see no PAUSE exits",
        hint=f"where the CPUs have it, leave {names} at their defaults",
    )


def _exits(root: Path, good: Check) -> Check:
    if any(_there(root / place / "events/kvm/kvm_exit") for place in _TRACEFS):
        return good
    return replace(
        good,
        result="warn",
        detail="there is no tracepoint kvm_exit",
        hint="mount tracefs at /sys/kernel/tracing; load KVM",
    )


def _sched_ext(root: Path, btf: KernelBtf, verify: Verify | None) -> list[Check]:
    found = []
    for need in preflight.requirements(btf, root):
        fault = f"this kernel {need.fault}" if need.fault and need.of_kernel else need.fault or ""
        hint = f"boot another kernel: {preflight.WHERE}" if fault and need.of_kernel else ""
        found.append(Check("sched_ext", need.text, "fail" if fault else "pass", fault, hint))
    if any(check.result == "fail" for check in found):
        return found
    if verify:
        found.append(_verified(verify))
    if preflight.must_push(btf):
        detail = "CPUs of this kernel cannot be kicked: gangs are scheduled, but for those that are `strict`"
        found.append(
            Check("sched_ext", "gangs can be strict", "warn", detail, "boot another kernel for `strict`")
        )
    return found


def _verified(verify: Verify) -> Check:
    """A description that has all the parts is no promise: it is the verifier who says yes or no."""
    asked = Check("sched_ext", "the kernel's verifier accepts the scheduler", "pass")
    try:
        refusal = verify()
    except PermissionError:
        return replace(asked, result="warn", detail="only root may ask the verifier", hint="run it as root")
    if refusal is None:
        return asked
    return replace(asked, result="fail", detail=refusal, hint="a gangd that runs with --verbose logs why")


def _module(root: Path) -> Check:
    fault = gang_ko.backend(root).probe()
    hint = "install gangd-dkms, which `make deb` builds, and the headers of this kernel" if fault else ""
    return Check(*_MODULE, "fail" if fault else "pass", fault or "", hint)


def _cpu_controller(root: Path, good: Check) -> Check:
    controllers = _text(root / "sys/fs/cgroup/cgroup.controllers")
    if controllers is None:
        return replace(
            good,
            result="warn",
            detail="no cgroup v2 at /sys/fs/cgroup: weights and room of guests may not be kept",
            hint="boot without systemd.unified_cgroup_hierarchy=0",
        )
    if "cpu" in controllers.split():
        return good
    return replace(
        good,
        result="warn",
        detail="cgroup v2 has no cpu controller: guests have no weights",
        hint="boot without cgroup_disable=cpu, and mount no cgroup v1 with it",
    )


def _cpus(root: Path, good: Check) -> Check:
    usable = len(Topology.read(root).usable)
    if usable > 1:
        return replace(good, detail=f"{usable} CPUs")
    return replace(
        good,
        result="fail",
        detail="one CPU: no two vCPUs can run at the same time",
        hint="switch more CPUs online, or leave fewer to isolcpus= and to cpusets of their own",
    )


def _smt(root: Path, good: Check) -> Check:
    control = _text(root / "sys/devices/system/cpu/smt/control")
    if control is None:
        return replace(good, result=None, detail="this kernel has no /sys/devices/system/cpu/smt/control")
    threads = max(map(len, Topology.read(root).cores()), default=1)
    return replace(good, detail=f"{control}, {threads} thread{'s'[: threads > 1]} a core")


def _libvirt(root: Path, good: Check) -> Check:
    lines = [line.split() for line in (_text(root / "proc/net/unix") or "").splitlines()]
    listening = {words[7] for words in lines if len(words) > 7 and words[3] == _LISTENING}
    for name in SOCKETS:
        if any(path.endswith(f"/run/libvirt/{name}") for path in listening):
            return replace(good, detail=f"/run/libvirt/{name}")
    return replace(
        good,
        result="warn",
        detail=f"nobody listens on {' or '.join(f'/run/libvirt/{name}' for name in SOCKETS)}",
        hint="systemctl start virtqemud.socket, or libvirtd.socket where libvirt is monolithic",
    )


_BEFORE = (
    ("KVM", "KVM is loaded", _kvm),
    ("KVM", "guests that spin are noticed (pause-loop exiting)", _ple),
    ("KVM", "VM exits can be counted (tracepoint kvm_exit)", _exits),
    ("CPUs", "two or more may run guests", _cpus),
    ("CPUs", "SMT is known", _smt),
)
_AFTER = (
    ("cgroups", "cgroup v2 has the cpu controller", _cpu_controller),
    ("libvirt", "its daemon listens", _libvirt),
)
