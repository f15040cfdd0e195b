# SPDX-License-Identifier: Apache-2.0
"""The package on a Debian whose libvirt is modular, with two guests that run: nothing but gangd itself comes
with it, and nothing is left behind.

libvirtd is disabled and not masked: a client that asked for it would start it, and virtqemud would end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import libvirt
from package import START_SECONDS, apt, gangctl, package, prepare_apt, states

from lab.guests.counters import ADDRESS, SIZE, Counters, NotReadyError, domain_xml
from vm.checks.inside import host
from vm.checks.inside.check import SHARE, note, run, wait_for

NAMES = ("a", "b")
KERNEL = Path("/var/lib/libvirt/images/loads.elf")
LIBVIRTD = ("libvirtd.socket", "libvirtd-ro.socket", "libvirtd-admin.socket", "libvirtd.service")
SOCKETS = (
    "virtqemud.socket",
    "virtqemud-ro.socket",
    "virtqemud-admin.socket",
    "virtlogd.socket",
    "virtlockd.socket",
)
UNITS = Path("/usr/lib/systemd/system")
VIRSH = ("virsh", "-c", "qemu:///system")  # without a URI Debian's virsh asks libvirtd, or no daemon
SETTINGS = ("cpuset.cpus", "cpu.max", "cpu.weight", "cpu.idle", "cpu.uclamp.min", "cpu.uclamp.max",
            "cgroup.subtree_control", "cgroup.type")  # fmt: skip
FILES = (
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/online",
    "/sys/kernel/sched_ext/state",
)
# The kernel, or any process that runs a program, changes these: they are no settings.
COUNTS = re.compile(r"kernel\.(random\.|ns_last_pid|pty\.nr|perf_event_max_sample_rate)")
# QEMU's threads for one request come and go.
PASSING = "worker"
kept: dict[str, Any] = {}


def systemd_units() -> dict[str, str]:
    """The active state of every unit that systemd knows."""
    words = ("list-units", "--all", "--plain", "--no-legend")
    lines = [line.split() for line in host.systemctl(*words).splitlines()]
    return {unit: active for unit, _, active, *_ in lines}


def output(*words: str) -> str:
    """Return a program's output; raise if the program fails."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def pid(name: str) -> int:
    """Return the PID of a guest's QEMU."""
    return int(Path(f"/run/libvirt/qemu/{name}.pid").read_text())


def threads(name: str) -> dict[str, str]:
    """Return CPUs, scheduling class and nice value of a guest's threads."""
    found = {}
    for task in Path(f"/proc/{pid(name)}/task").iterdir():
        status = dict(
            line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line
        )
        if status["Name"] != PASSING:
            tid = int(task.name)
            found[f"{status['Name']} {tid}"] = (
                f"CPUs {status['Cpus_allowed_list']} class {os.sched_getscheduler(tid)} "
                f"nice {os.getpriority(os.PRIO_PROCESS, tid)}"
            )
    return found


def sysctls() -> dict[str, str]:
    """Return the kernel's settings."""
    lines = (
        line.partition(" = ") for line in output("sysctl", "-a", "--pattern", r"^(kernel|vm)\.").splitlines()
    )
    return {name: value for name, _, value in lines if not COUNTS.match(name)}


def record() -> dict[str, str]:
    """Return every setting of this host that gangd could have changed, by its name."""
    found = {f"unit {unit}": state for unit, state in systemd_units().items()}
    for name in NAMES:
        found[f"definition of {name}"] = output(*VIRSH, "dumpxml", "--inactive", name)
        found[f"{name} live"] = output(*VIRSH, "dumpxml", name)
        found |= {f"{name}: {thread}": text for thread, text in threads(name).items()}
    for path in Path("/sys/fs/cgroup/machine.slice").rglob("*"):
        if path.name in SETTINGS:
            found[str(path)] = path.read_text()
    for scope in Path("/sys/fs/cgroup/machine.slice").glob("*.scope"):
        words = ("show", scope.name, "-p", "CPUWeight,CPUQuotaPerSecUSec,AllowedCPUs,DropInPaths")
        found[scope.name] = host.systemctl(*words)
    found |= {path: Path(path).read_text() for path in FILES}
    found["virtqemud"] = host.systemctl("show", "-p", "MainPID,NRestarts,InvocationID", "virtqemud.service")
    return found | sysctls()


def changed(but: str = r"(?!)") -> list[str]:
    """Return a line for each setting that differs from its record, apart from those that match `but`."""
    before, now = kept["before"], record()
    return [
        f"{key}: was {before.get(key)}, is {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not re.match(but, key)
    ]


def counts(name: str) -> int:
    """Return the iterations of a guest's payload so far; 0 while it boots."""
    memory = kept["conn"].lookupByName(name).memoryPeek(ADDRESS, SIZE, libvirt.VIR_MEMORY_PHYSICAL)
    try:
        return Counters.parse(memory).iterations
    except NotReadyError:
        return 0


def get_on() -> None:
    """Both guests do."""
    for name in NAMES:
        before = counts(name)
        wait_for(lambda name=name, before=before: counts(name) > before, 20, f"{name} counts")


def nobody_asked_for_libvirtd() -> None:
    """virtqemud is there, and systemd has never had to do with libvirtd since boot."""
    assert states(["virtqemud.service", "libvirtd.service"]) == ["active", "inactive"]
    said = host.journal("libvirtd.service")
    assert not said.replace("-- No entries --", "").strip(), said


def go_modular() -> None:
    """Replace libvirtd, which no client has asked for yet, by virtqemud and its companions."""
    host.systemctl("disable", "--now", *LIBVIRTD)
    output("dpkg", "-i", *map(str, SHARE.glob("libvirt-daemon-lock_*.deb")))
    shutil.copy(SHARE / "virtqemud", "/usr/sbin")
    for unit in SHARE.glob("virtqemud*.s*"):
        shutil.copy(unit, UNITS)
    host.systemctl("daemon-reload")
    host.systemctl("unmask", "virtlockd.socket")
    host.systemctl("enable", "--now", *SOCKETS)


def check_two_guests_run_under_virtqemud() -> None:
    """The host before: virtqemud, started by its socket, runs two guests, and there is no libvirtd."""
    prepare_apt()
    go_modular()
    output("modprobe", "kvm_amd")
    KERNEL.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SHARE / "loads.elf", KERNEL)
    libvirt.registerErrorHandler(lambda *_: None, None)
    kept["conn"] = libvirt.open("qemu:///system")
    for name in NAMES:
        text = domain_xml(name, "duty", kernel=KERNEL, options={"window": 3000, "on": 200, "off": 800})
        kept["conn"].defineXML(text).create()
    for name in NAMES:
        wait_for(lambda name=name: counts(name) > 0, 60, f"{name} counts")
    nobody_asked_for_libvirtd()
    sysctls()  # has systemd mount what is below fs.binfmt_misc
    kept["before"] = record()
    note(f"{len(kept['before'])} settings recorded")
    assert not changed(), changed()


def check_installing_adds_gangd_alone() -> None:
    """`apt install` starts gangd, which finds virtqemud. All other units, both guests and all settings are as
    before, virtqemud runs on, and no client asked for libvirtd."""
    apt("install", package())
    host.systemctl("start", "gangd")
    wait_for(lambda: gangctl("status")["libvirt"]["connected"], START_SECONDS, "virtqemud is found")
    new = {unit for unit in systemd_units() if f"unit {unit}" not in kept["before"]}
    note(f"new units: {', '.join(sorted(new))}")
    assert not changed("unit gangd"), "\n".join(changed("unit gangd"))
    nobody_asked_for_libvirtd()
    get_on()


def is_gang() -> bool:
    """gangd counts turns of the marked guest, in the scheduler that is loaded."""
    return host.scheduler() == "enabled" and any(
        domain["name"] == "a" and domain["gang"] and domain["gang"]["turns"]
        for domain in gangctl("stats")["domains"]
    )


def check_a_marked_guest_is_a_gang() -> None:
    """`gangctl mark a --policy relaxed`: a is scheduled as a gang. Both of its definitions differ from
    before by the mark alone, and b is as before."""
    gangctl("mark", "a", "--policy", "relaxed")
    wait_for(is_gang, START_SECONDS, "a is a gang")
    get_on()
    assert not [line for line in changed("unit gangd") if re.match(r"(b|definition of b)\b", line)]
    now = record()
    for key in ("definition of a", "a live"):
        unmarked, marks = re.subn(r"\n *<metadata>\s*<gangd:gang [^<>]*/>\s*</metadata>", "", now[key])
        assert marks == 1 and unmarked == kept["before"][key], now[key]
    nobody_asked_for_libvirtd()


def check_unmarked_it_is_as_before() -> None:
    """`gangctl unmark a`: but for gangd's units all is as before it was installed."""
    gangctl("unmark", "a")
    wait_for(lambda: host.scheduler() == "disabled", START_SECONDS, "the scheduler is unloaded")
    assert not changed("unit gangd"), "\n".join(changed("unit gangd"))
    get_on()


def check_a_stop_in_mid_schedule_leaves_virtqemud() -> None:
    """`systemctl stop gangd` while a is a gang: but for the mark all is as before, virtqemud runs on."""
    gangctl("mark", "a", "--policy", "relaxed")
    wait_for(is_gang, START_SECONDS, "a is a gang again")
    host.systemctl("stop", "gangd")
    but = "unit gangd|a live|definition of a"
    assert not changed(but), "\n".join(changed(but))
    nobody_asked_for_libvirtd()
    host.systemctl("start", "gangd")
    wait_for(is_gang, START_SECONDS, "by its mark a is a gang again")
    gangctl("unmark", "a")


def check_purged_it_was_never_there() -> None:
    """`apt purge gangd`: `systemctl list-units`, `virsh dumpxml` of both guests and all settings are as
    recorded; virtqemud is the process it was, the guests get on, and no client has asked for libvirtd."""
    apt("purge", "gangd")
    assert not changed(), "\n".join(changed())
    assert host.our_programs() == []
    nobody_asked_for_libvirtd()
    get_on()


if __name__ == "__main__":
    run(__file__, dict(globals()))
