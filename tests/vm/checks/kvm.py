# SPDX-License-Identifier: Apache-2.0
"""Guests that no libvirt has, beside one that it has: a scope below qemu.slice as Proxmox VE makes them, and
a pod with PID and mount namespaces of its own, as KubeVirt has them.

The first has a mark with its cgroup, the second is chosen by a selector.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from gangd.actuate.journal import Journal
from gangd.control.client import connect
from gangd.errors import NoDaemon
from lab.guests.counters import ADDRESS, SIZE, Counters, NotReadyError, command_line
from vm.checks.inside import host, service
from vm.checks.inside.check import figure, note, run, wait_for
from vm.checks.inside.guest import KERNEL, OPTIONS, Guests

CGROUPS = Path("/sys/fs/cgroup")
SCOPE, POD = "qemu.slice/100.scope", "kubepods.slice/kubepods-pod1.slice/cri-1.scope"
CONFIG = """[daemon]
guests = ["libvirt", "kvm"]
measure_interval = 1

[[select]]
cgroup = "kubepods.slice/*"
policy = "relaxed"
"""
JOURNAL = Path("/run/gangd/journal")
RETURN_SECONDS = 90.0  # Python starts, the kernel verifies, and the guests want the CPUs, too
WHOLE = 0.8  # of turns

guests = Guests()
service.configure(CONFIG)
service.start("restart")
kept: dict[str, Any] = {}


class Machine:
    """A QEMU that something else than libvirt started. words: what starts it."""

    def __init__(self, name: str, *words: str) -> None:
        self.name, self.memory = name, Path(f"/dev/shm/{name.replace('/', '-')}")
        ram = f"memory-backend-file,id=ram,size=16M,share=on,mem-path={self.memory}"
        qemu = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-smp", "2", "-m", "16", "-nodefaults"]
        load = command_line("barrier", 2, OPTIONS)
        rest = ["-object", ram, "-machine", "pc,hpet=off,memory-backend=ram", "-display", "none"]
        self.process = subprocess.Popen([*words, *qemu, *rest, "-kernel", str(KERNEL), "-append", load])
        self.begun = time.monotonic()

    def iterations(self) -> int:
        """The payload's iterations since it started; 0 while it boots."""
        try:
            with self.memory.open("rb") as file:
                file.seek(ADDRESS)
                return Counters.parse(file.read(SIZE)).iterations
        except (NotReadyError, FileNotFoundError, ValueError):
            return 0

    def threads(self) -> list[int]:
        """Every thread below its cgroup."""
        return sorted(map(int, (CGROUPS / self.name / "cgroup.threads").read_text().split()))

    def settings(self) -> dict[int, tuple[int, frozenset[int]]]:
        """Return what gangd could have changed of its threads."""
        return {
            tid: (os.sched_getscheduler(tid), frozenset(os.sched_getaffinity(tid))) for tid in self.threads()
        }

    def end(self) -> None:
        """Kill all that is in its cgroup."""
        (CGROUPS / self.name / "cgroup.kill").write_text("1")
        self.process.wait()


def scope() -> Machine:
    """Return a machine in a scope, as `qm start 100` starts it."""
    return Machine(SCOPE, "systemd-run", "--quiet", "--scope", "--slice=qemu", "--unit=100")


def pod() -> Machine:
    """Return a machine in a pod's cgroup, as a container's runtime starts it."""
    folder = CGROUPS / POD
    folder.mkdir(parents=True, exist_ok=True)
    joined = f'echo 0 > {folder}/cgroup.procs && exec unshare --pid --mount --fork --kill-child "$@"'
    return Machine(POD, "sh", "-c", joined, "sh")


def fresh() -> None:
    """The two, and a guest of libvirt's that is a gang."""
    for machine in kept.pop("machines", ()):
        machine.end()
    guests.keep_only()
    kept["machines"] = [scope(), pod()]
    guests.start("g0", "barrier")
    connect().mark("g0", policy="relaxed")
    wait_for(lambda: all(one.iterations() for one in kept["machines"]), 60, "the guests count")


def lost() -> str | None:
    """Return why a guest does not count any more, None while all do."""
    before = [machine.iterations() for machine in kept["machines"]]
    time.sleep(5.0)
    stuck = [one.name for one, was in zip(kept["machines"], before, strict=True) if one.iterations() <= was]
    return f"{', '.join(stuck)} counts no more" if stuck else guests.lost()


def listed() -> dict[str, dict[str, Any]]:
    """gangd's guests by name, as it has them now; none while it does not answer."""
    try:
        return {domain["name"]: domain for domain in connect().domains()["domains"]}
    except NoDaemon:
        return {}


def are_gangs(*names: str) -> bool:
    """These guests, and nobody else, have turns."""
    having = {name for name, one in listed().items() if one["schedule"] == "relaxed"}
    return host.scheduler() == "enabled" and having == set(names)


def check_guests_are_seen_where_they_are() -> None:
    """A new one, too, by its cgroup and with its source; libvirt's guests are libvirt's alone. The selector's
    is a gang, and the other one is left alone."""
    fresh()
    wait_for(lambda: are_gangs("g0", POD), RETURN_SECONDS, "the selector's guest and libvirt's are gangs")
    found = listed()
    assert {name: one["source"] for name, one in found.items()} == {"g0": "libvirt", SCOPE: "kvm", POD: "kvm"}
    assert found[SCOPE]["vcpus"] == found[POD]["vcpus"] == 2
    begun = time.monotonic()
    late = Machine("qemu.slice/101.scope", "systemd-run", "--quiet", "--scope", "--slice=qemu", "--unit=101")
    kept["machines"].append(late)
    wait_for(lambda: late.name in listed(), 60, "the new guest is seen")
    seen = time.monotonic() - begun
    wait_for(lambda: late.iterations() > 0, 60, "it counts")
    note(f"seen {seen:.2f} s after QEMU was started; it counted after {time.monotonic() - begun:.2f} s")
    figure("kvm_seen_seconds", seen)
    kept["machines"].remove(late)
    late.end()
    wait_for(lambda: late.name not in listed(), 10, "the guest that ended is forgotten")


def check_a_mark_with_its_cgroup_makes_a_gang() -> None:
    """`gangctl mark` by the path; the mark is the cgroup's attribute. Turns of all three guests are whole."""
    kept["settings"] = [machine.settings() for machine in kept["machines"]]
    subprocess.run(["gangctl", "mark", SCOPE, "--policy", "relaxed"], check=True, timeout=120)
    assert b"relaxed" in os.getxattr(CGROUPS / SCOPE, "user.gang")
    wait_for(lambda: are_gangs("g0", SCOPE, POD), RETURN_SECONDS, "all three are gangs")
    before = [machine.iterations() for machine in kept["machines"]]
    client = connect()
    first = service.stats(client)
    time.sleep(8.0)
    second = service.stats(client)
    for name in (SCOPE, POD, "g0"):
        turns, whole = (second[name]["gang"][key] - first[name]["gang"][key] for key in ("turns", "whole"))
        ran = second[name]["run_seconds"] - first[name]["run_seconds"]
        together = (second[name]["corun_seconds"] - first[name]["corun_seconds"]) / ran
        note(f"{name}: {turns} turns, {whole / turns:.3f} whole; together for {together:.3f} of its time")
        assert turns > 10 and whole / turns >= WHOLE
    for machine, was in zip(kept["machines"], before, strict=True):
        assert machine.iterations() > was, machine.name


def check_a_restart_and_a_death_of_gangd_change_nothing() -> None:
    """The guests are the same runs, by UUID, and gangs again; their mark is found where it was."""
    uuids = {name: one["uuid"] for name, one in listed().items()}
    host.systemctl("restart", "gangd")
    wait_for(lambda: are_gangs("g0", SCOPE, POD), RETURN_SECONDS, "all three are gangs after a restart")
    os.kill(int(host.systemctl("show", "--property=MainPID", "--value", "gangd")), signal.SIGKILL)
    wait_for(lambda: are_gangs("g0", SCOPE, POD), 2 * RETURN_SECONDS, "all three are gangs after kill -9")
    assert {name: one["uuid"] for name, one in listed().items()} == uuids
    assert lost() is None


def check_unmarked_and_stopped_the_host_is_as_it_was() -> None:
    """Unmark takes the attribute away; a stopped gangd leaves classes and affinities as they were."""
    subprocess.run(["gangctl", "unmark", SCOPE], check=True, timeout=120)
    wait_for(lambda: are_gangs("g0", POD), RETURN_SECONDS, "the unmarked guest is left alone")
    assert "user.gang" not in os.listxattr(CGROUPS / SCOPE)
    host.systemctl("stop", "gangd")
    assert host.scheduler() == "disabled" and not host.our_programs()
    assert not Journal(JOURNAL).entries
    assert [machine.settings() for machine in kept["machines"]] == kept["settings"]
    assert lost() is None


run(__file__, globals(), lost=lost)
