# SPDX-License-Identifier: Apache-2.0
"""Read one libvirt domain into a `Domain`. Blocking; called from worker threads.

A domain may vanish or stop between any two calls. Gone raises NoSuchDomain;
whatever else cannot be read is None or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import libvirt

from gangd import virt
from gangd.errors import InvalidMark, NoSuchDomain
from gangd.events import proc, threads
from gangd.model.domain import NAMESPACE, WEIGHT_DEFAULT, Domain, Helper, Mark, Vcpu
from gangd.model.mark import WEIGHT_MAX, WEIGHT_MIN, parse_mark

_T = TypeVar("_T")
# virsh's words (tools/virsh-domain-monitor.c, virshDomainState).
STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: "no state",
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "idle",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "in shutdown",
    libvirt.VIR_DOMAIN_SHUTOFF: "shut off",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended",
}
# Why libvirt has paused a guest that it does something with itself.
_BUSY = {
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION: "it is being migrated",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY: "it is being migrated",
    libvirt.VIR_DOMAIN_PAUSED_SAVE: "it is being saved",
    libvirt.VIR_DOMAIN_PAUSED_DUMP: "it is being dumped",
    libvirt.VIR_DOMAIN_PAUSED_SNAPSHOT: "a snapshot of it is being made",
    libvirt.VIR_DOMAIN_PAUSED_STARTING_UP: "it is being started",
}
_SHARES_DEFAULT_V1 = 1024
EMULATOR = "emulator"
NO_PROCESS = "its QEMU process was not found: libvirt's PID file names none that has its UUID"


def read_domain(dom: Any, root: Path = Path("/")) -> Domain:
    """Everything gangd knows of `dom` (a virDomain). Raises NoSuchDomain, NoLibvirt."""
    try:
        state, _, memory = dom.info()[:3]
        number = dom.ID()
        uuid, name = dom.UUIDString(), dom.name()
    except libvirt.libvirtError as error:
        raise virt.translate(error)
    mark, mark_error = _mark(dom)
    domain = Domain(
        uuid=uuid,
        name=name,
        state=STATES.get(state, "unknown"),
        mark=mark,
        mark_error=mark_error,
        weight=_weight(dom, root),
        memory_kib=memory,
        busy=_busy(dom) if state == libvirt.VIR_DOMAIN_PAUSED else "",
    )
    if state == libvirt.VIR_DOMAIN_SHUTOFF or number < 0:
        return domain
    pid = threads.qemu_pid(name, uuid, root)
    if pid is not None and mark is None and mark_error is None and threads.marked_by_cgroup(pid, root):
        domain = replace(domain, mark=Mark(None))
    found = threads.vcpu_threads(pid, root) if pid is not None else {}
    around = _around(pid, found, root, lambda: _emulator_pin(dom))

    def pin(vcpu: int) -> frozenset[int]:
        room = threads.vcpu_room(pid, vcpu, root) if pid is not None else frozenset()
        return _own(room, around["allowed"])

    hidden = "" if pid is not None else NO_PROCESS
    return replace(domain, id=number, pid=pid, vcpus=_vcpus(dom, found, pin), hidden=hidden, **around)


def read_again(known: Domain, root: Path = Path("/")) -> Domain | None:
    """A domain with what the kernel says of it now beside what libvirt told, which raises events of its own.

    None: libvirt has to be asked, for the threads are others, or the mark may be the cgroup's.
    """
    if not known.running:
        return known
    pid = threads.qemu_pid(known.name, known.uuid, root)
    found = threads.vcpu_threads(pid, root) if pid is not None else {}
    told = {vcpu.index: (vcpu.tid, vcpu.starttime) for vcpu in known.vcpus if vcpu.tid is not None}
    if pid != known.pid or {index: (one.tid, one.starttime) for index, one in found.items()} != told:
        return None
    plain = pid is not None and known.mark in (None, Mark(None)) and known.mark_error is None
    if plain and (known.mark is None) == threads.marked_by_cgroup(pid or 0, root):
        return None  # the metadata may say the same as a cgroup that was marked
    pins = {helper.name: helper.affinity for helper in known.helpers}  # libvirt tells of changes
    around = _around(pid, found, root, lambda: pins.get(EMULATOR, frozenset()))
    vcpus = [replace(vcpu, real_time=one.real_time)
             if (one := found.get(vcpu.index)) and one.real_time != vcpu.real_time else vcpu
             for vcpu in known.vcpus]  # fmt: skip
    return replace(known, vcpus=tuple(vcpus), **around)


def _busy(dom: Any) -> str:
    _, reason = _tried(dom.state) or (None, None)
    return _BUSY.get(reason, "")


def _around(
    pid: int | None,
    found: Mapping[int, proc.Thread],
    root: Path,
    emulator_pin: Callable[[], frozenset[int]],
) -> dict[str, Any]:
    """Helper threads, and what limits them all: from cgroups, for libvirt would have to ask QEMU. The
    emulator's pin is asked for where no cpuset tells it."""
    if pid is None:
        return {"helpers": (), "allowed": frozenset()}
    groups, allowed = threads.around(pid, found, root)
    helpers = [Helper(name, _own(group.room, allowed)) for name, group in groups.items()]
    told = threads.pins_helpers(pid, root)
    return {"helpers": tuple(helpers) if told else _pinned(helpers, emulator_pin()), "allowed": allowed}


def _emulator_pin(dom: Any) -> frozenset[int]:
    """The CPUs that libvirt's emulatorpin names; none where that is no limit. It asks no QEMU for this."""
    flags = _tried(dom.emulatorPinInfo) or ()
    return frozenset() if all(flags) else _cpus(flags)


def _pinned(helpers: Iterable[Helper], cpus: frozenset[int]) -> tuple[Helper, ...]:
    """The helpers, with the emulator's pin where no cpuset tells it."""
    return tuple(replace(one, affinity=cpus) if one.name == EMULATOR and cpus else one for one in helpers)


def _own(room: frozenset[int], allowed: frozenset[int]) -> frozenset[int]:
    """The CPUs that a cgroup of a guest leaves its threads; none where these are what the whole guest has."""
    return room if room != allowed else frozenset()


def _vcpus(
    dom: Any, found: Mapping[int, proc.Thread], pin: Callable[[int], frozenset[int]]
) -> tuple[Vcpu, ...]:
    info, real = _tried(dom.vcpus) or ([], [])
    pins = _tried(dom.vcpuPinInfo) or []
    actual = {entry[0]: _cpus(cpus) for entry, cpus in zip(info, real, strict=False)}
    allowed = dict(actual)
    # libvirt-python truncates the pins to the number of online vCPUs, so with a hole (vCPU 1 unplugged) the
    # last ones are missing. Their cgroups have them, too; the threads' affinity may be gangd's own doing.
    allowed.update({index: pin(index) for index in actual if pins and index >= len(pins)})
    allowed.update({index: _cpus(cpus) for index, cpus in enumerate(pins) if index in allowed or not info})
    vcpus = []
    for index in sorted(allowed.keys() | found.keys()):
        thread = found.get(index)
        vcpus.append(
            Vcpu(
                index=index,
                tid=thread.tid if thread else None,
                starttime=thread.starttime if thread else None,
                real_time=thread.real_time if thread else False,
                affinity=allowed.get(index, frozenset()),
                actual=actual.get(index, frozenset()),
            )
        )
    return tuple(vcpus)


def _mark(dom: Any) -> tuple[Mark | None, str | None]:
    """The mark in force: a running domain's live one, else the configured one. Raises GangError."""
    try:
        text = dom.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE)
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_ERR_NO_SUPPORT):
            return None, None
        failure = virt.translate(error)
        if error.get_error_code() == libvirt.VIR_ERR_RPC:  # it has more than libvirt can send, for good
            return None, f"libvirt does not send it: {failure.cause}"
        raise failure
    try:
        return parse_mark(text), None
    except InvalidMark as error:
        return None, error.cause


def _weight(dom: Any, root: Path) -> int | None:
    """CPU weight on the cgroup v2 scale, None when libvirt has no cpu controller.

    On a v2 host libvirt passes cpu.weight through as `cpu_shares`, number as is;
    on v1 the default of the same word is 1024.
    """
    shares = (_tried(dom.schedulerParameters) or {}).get("cpu_shares")
    if not shares:
        return None
    if not (root / "sys/fs/cgroup/cgroup.controllers").exists():
        shares = round(shares * WEIGHT_DEFAULT / _SHARES_DEFAULT_V1)
    return int(min(max(shares, WEIGHT_MIN), WEIGHT_MAX))


def _tried(call: Callable[[], _T]) -> _T | None:
    """The call's answer, None when this domain has none; raises NoSuchDomain, NoLibvirt."""
    try:
        return call()
    except libvirt.libvirtError as error:
        failure = virt.translate(error)
        if isinstance(failure, NoSuchDomain) or failure.code == "NoLibvirt":
            raise failure
        return None


def _cpus(flags: tuple[bool, ...]) -> frozenset[int]:
    return frozenset(cpu for cpu, allowed in enumerate(flags) if allowed)
