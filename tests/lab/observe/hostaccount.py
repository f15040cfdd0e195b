# SPDX-License-Identifier: Apache-2.0
"""Everything gangd may change on a host, as a flat account that can be compared with a later one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from lab.guests.domains import Guest

NAMESPACE = "urn:gangd:domain:1"
GROUP_FILES = (
    *("cgroup.type", "cpu.weight", "cpu.weight.nice", "cpu.max", "cpu.idle"),
    *("cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition", "cpuset.mems"),
)
SCHED_LINES = ("policy", "prio", "ext.enabled")
SCHED_EXT = Path("/sys/kernel/sched_ext")
OF_BPF = ("BPF program", "struct_ops")  # how the settings of _programs() begin

Account = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """A setting that is not what it was; None: it is not there."""

    setting: str
    before: str | None
    after: str | None


def compare(before: Account, after: Account) -> list[Difference]:
    """Every setting of either account that the other does not have alike."""
    keys = sorted({*before, *after})
    return [Difference(k, before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)]


def account(guests: list[Guest]) -> Account:
    """The host as it is now: programs, scheduler, and each guest's pins, groups and threads."""
    found = dict(_programs())
    for file in ("state", "root/ops", "switch_all"):
        found[f"sched_ext {file}"] = _text(SCHED_EXT / file)
    for guest in guests:
        for key, value in _guest(guest):
            found[f"{guest.name}: {key}"] = value
    return found


def _programs() -> Iterator[tuple[str, str]]:
    for entry in _bpftool("prog", "list"):
        yield f"BPF program {entry['id']}", f"{entry['type']} {entry.get('name', '')} {entry.get('tag', '')}"
    for entry in _bpftool("struct_ops", "list"):
        yield f"struct_ops {entry['id']}", f"{entry.get('name', '')} {entry.get('kernel_struct_ops', '')}"


def _bpftool(*words: str) -> list[dict[str, Any]]:
    done = subprocess.run(["bpftool", "-j", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"bpftool {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


def _guest(guest: Guest) -> Iterator[tuple[str, str]]:
    domain = guest.domain
    live, config = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    for vcpu, flags in enumerate(domain.vcpuPinInfo(live)):
        yield f"pin of vCPU {vcpu}", _cpus(flags)
    yield "pin of the emulator", _cpus(domain.emulatorPinInfo(live))
    yield "scheduler parameters", str(sorted(domain.schedulerParametersFlags(live).items()))
    yield "mark, live", _mark(domain, live)
    yield "mark, persistent", _mark(domain, config)
    for group, file, value in _groups(guest.pid):
        yield f"cgroup {group} {file}", value
    for vcpu, tid in guest.threads().items():
        yield from ((f"thread of vCPU {vcpu}: {key}", value) for key, value in _thread(guest.pid, tid))


def _mark(domain: Any, flags: int) -> str:
    with contextlib.suppress(libvirt.libvirtError):
        return str(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, flags))
    return "none"


def _groups(pid: int) -> Iterator[tuple[str, str, str]]:
    """(group, file, value) of the guest's cgroup v2 scope and everything below it."""
    paths = [line[3:] for line in _text(Path(f"/proc/{pid}/cgroup")).splitlines() if line.startswith("0::")]
    parts = Path(paths[0].lstrip("/") if paths else "").parts
    scopes = [number for number, part in enumerate(parts) if part.endswith(".scope")]
    if not scopes:
        return
    scope = Path("/sys/fs/cgroup", *parts[: scopes[-1] + 1])
    for group in [scope, *sorted(path for path in scope.rglob("*") if path.is_dir())]:
        for file in GROUP_FILES:
            if (group / file).exists():
                yield str(group.relative_to(scope)), file, _text(group / file)


def _thread(pid: int, tid: int) -> Iterator[tuple[str, str]]:
    yield "affinity", _list(os.sched_getaffinity(tid))
    yield "scheduling policy", str(os.sched_getscheduler(tid))
    yield "nice", str(os.getpriority(os.PRIO_PROCESS, tid))
    for line in _text(Path(f"/proc/{pid}/task/{tid}/sched")).splitlines():
        name, separator, value = line.partition(":")
        if separator and name.strip() in SCHED_LINES:
            yield f"sched {name.strip()}", value.strip()


def _cpus(flags: Any) -> str:
    return _list({cpu for cpu, allowed in enumerate(flags) if allowed})


def _list(cpus: set[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return "not there"
