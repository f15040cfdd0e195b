# SPDX-License-Identifier: Apache-2.0
"""The package on a Debian that has never seen gangd: install, use, reload, upgrade, remove, purge.

Nothing of gangd can be imported before the first check has installed it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from vm.checks.inside import host
from vm.checks.inside.check import SHARE, note, run, wait_for

EXPORTER = "http://127.0.0.1:9752"
METRICS = f"{EXPORTER}/metrics"
RUNBOOKS = Path("/usr/share/doc/gangd/monitoring/runbooks")
CONFIG = Path("/etc/gangd/gangd.toml")
# Where packages put things. What belongs to dpkg and apt, and what Python compiles, is theirs.
PLACES = ("/etc", "/usr", "/var/lib", "/opt", "/srv")
THEIRS = re.compile(
    r"/var/lib/(dpkg|apt|libvirt|systemd/(random|timers|coredump))|/__pycache__|/etc/(apparmor.d/)?libvirt/"
    r"|/etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$"
)
CAPABILITIES = {"sys_admin": 21, "sys_nice": 23, "perfmon": 38, "bpf": 39}  # include/uapi/linux/capability.h
SMT = Path("/sys/devices/system/cpu/smt/control")
PACKAGES = "/usr/lib/python3/dist-packages"
PROBE = """
import ctypes
from pathlib import Path
from sdbus import sd_bus_open_system

(group,) = Path("/sys/fs/cgroup/machine.slice").glob("machine-*.scope")
place = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
bus = sd_bus_open_system()
message = bus.new_method_call_message(*place, "SetUnitProperties")
message.append_data("sba(sv)", group.name, True, [("CPUWeight", ("t", 300))])
bus.call(message)
assert (group / "cpu.weight").read_text() == "300\\n"
(group / "cpu.weight").write_text("100")
(group / "cpuset.cpus").write_text("0-1")
(group / "cpuset.cpus").write_text("")
ctypes.CFUNCTYPE(None)(lambda: print("the probe is through", flush=True))()
"""
START_SECONDS = 90.0  # the kernel verifies the scheduler, too
# All that gangd depends on is there: apt needs no list of what else there is, and it and its helpers would
# read theirs for 15 virtual seconds each time.
DPKG_CONFIG = Path("/etc/dpkg/dpkg.cfg.d/zz-lab")
APT_CONFIG, NO_LISTS = Path("/etc/apt/apt.conf.d/lab"), Path("/run/no-lists")
# As on any Debian, but without the profiles of others: they take long to load in an emulator.
PARTS = ("abi", "abstractions", "tunables")
PROFILES = ["--path-exclude=/etc/apparmor.d/*"]
PROFILES += [f"--path-include=/etc/apparmor.d/{part}/*" for part in PARTS]
kept: dict[str, Any] = {}


def files() -> set[str]:
    """Return every path where packages put things, but dpkg's and apt's own."""
    found = subprocess.run(["find", *PLACES, "-print0"], capture_output=True, text=True, check=True).stdout
    return {path for path in found.split("\0") if path and not THEIRS.search(path)}


def apt(*words: str) -> str:
    """Return apt-get's output; fail if apt-get fails."""
    done = subprocess.run(
        ["apt-get", "-y", "-o", "APT::Sandbox::User=root", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def prepare_apt() -> None:
    """AppArmor, which a Debian has; and for apt no list of what else there is."""
    host.systemctl("mask", "apparmor.service")
    words = ["dpkg", *PROFILES, "-i", *SHARE.glob("apparmor_*.deb")]
    subprocess.run(words, check=True, capture_output=True)
    (NO_LISTS / "partial").mkdir(parents=True)
    APT_CONFIG.write_text(f'Dir::State::Lists "{NO_LISTS}";\n')
    DPKG_CONFIG.write_text("path-include=/usr/share/doc/gangd/*\n")  # the lab's Debian has no documentation


def package() -> str:
    """The file, where apt takes it for one."""
    (found,) = SHARE.glob("gangd_*.deb")
    return str(found)


def gangctl(*words: str) -> dict[str, Any]:
    """The document that gangctl prints."""
    done = subprocess.run(["gangctl", "--json", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def states(units: list[str]) -> list[str]:
    """Return the states of `units` as `systemctl is-active` names them."""
    done = subprocess.run(["systemctl", "is-active", *units], capture_output=True, text=True, check=False)
    return done.stdout.split()


def status_of(unit: str) -> dict[str, str]:
    """/proc/PID/status of a service's main process."""
    pid = host.systemctl("show", "--value", "--property", "MainPID", unit)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def guest() -> Any:
    """The guest of all checks (guests.Guest)."""
    return kept["guest"]


def fresh() -> None:
    """A new guest, marked."""
    from vm.checks.inside.guest import Guest, prepare

    if "guest" in kept:
        guest().destroy()
    kept["guest"] = Guest(prepare(), "g", "duty", on=200, off=800).start()  # gangd is what is looked at
    kept["settings"] = guest().settings()
    gangctl("mark", "g", "--policy", "relaxed")


def lost() -> str | None:
    """Return why the guest does not count any more; None while it does, or before there is one."""
    reason: str | None = guest().lost() if "guest" in kept else None
    return reason


def scheduled() -> bool:
    """True if the guest is a gang and is not pinned."""
    return host.scheduler() == "enabled" and guest().affinities() == ((0, 1), (0, 1)) and is_gang()


def is_gang() -> bool:
    """gangd counts turns of the guest."""
    (domain,) = gangctl("stats")["domains"]
    return bool(domain["gang"])


def check_apt_installs_and_starts_it() -> None:
    """`apt install ./gangd_*.deb` is all: gangd is enabled and runs, and the exporter with it."""
    assert subprocess.run(["which", "gangd"], capture_output=True, check=False).returncode != 0
    prepare_apt()
    kept["before"] = files()
    apt("install", package())
    assert host.systemctl("is-enabled", "gangd") == "enabled"
    host.systemctl("start", "gangd")
    units = ["gangd", "gangd-exporter"]
    wait_for(lambda: states(units) == ["active"] * 2, START_SECONDS, "both units run")
    assert not CONFIG.exists()  # every default holds


def check_gangctl_answers() -> None:
    """The command is there, the bus lets it through, and gangd has found libvirt."""
    wait_for(lambda: gangctl("status")["libvirt"]["connected"], START_SECONDS, "libvirt is found")
    status = gangctl("status")
    note(status["backend"]["reason"])
    assert status["backend"]["usable"] and status["backend"]["name"] == "sched_ext"


def check_the_daemon_has_four_capabilities() -> None:
    """The unit leaves gangd four capabilities, no new ones, a system call filter, no network."""
    found = status_of("gangd")
    expected = sum(1 << number for number in CAPABILITIES.values())
    assert int(found["CapBnd"], 16) == int(found["CapEff"], 16) == expected
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    links = Path(f"/proc/{found['Pid']}/net/dev").read_text().splitlines()[2:]
    assert [line.partition(":")[0].strip() for line in links] == ["lo"]


def check_the_exporter_has_none() -> None:
    """The exporter serves gangd's page as a user of its own, without any capability."""
    found = status_of("gangd-exporter")
    assert "0" not in found["Uid"].split()
    assert {int(found[kind], 16) for kind in ("CapBnd", "CapEff", "CapPrm", "CapAmb")} == {0}
    try:
        text = urllib.request.urlopen(METRICS, timeout=60).read().decode()
    except OSError as error:
        raise AssertionError(f"{error}\n{host.journal('gangd-exporter')}") from None
    assert "gangd_libvirt_connected 1.0" in text


def check_apparmor_confines_both() -> None:
    """Each program runs under its profile, which is enforced; so does libvirtd, as on any Debian."""
    for unit in ("gangd", "gangd-exporter", "libvirtd"):
        label = Path(f"/proc/{status_of(unit)['Pid']}/attr/apparmor/current").read_text().strip()
        assert label == f"{unit} (enforce)"


def check_smt_goes_off_and_comes_back() -> None:
    """`gangctl smt off`, undone by `undo --all`: the one file below /sys/devices that gangd may write."""
    assert SMT.read_text() == "on\n"
    gangctl("smt", "off")
    assert SMT.read_text() == "off\n"
    gangctl("undo", "--all")
    assert SMT.read_text() == "on\n"


def check_a_guest_is_scheduled() -> None:
    """A marked guest is a gang with these rights, and its VM exits are counted."""
    fresh()
    wait_for(scheduled, START_SECONDS, "the guest is a gang")
    status = gangctl("status")
    note(f"{status['backend']['reason']}; {status['probes']['reason']}")
    assert status["probes"]["active"] and status["failures"] == []
    wait_for(counted, START_SECONDS, "turns, run time and exits are counted")


def counted() -> bool:
    """True if the scheduler's and the probes' counts of the guest are known, and there are VM exits."""
    (domain,) = gangctl("stats")["domains"]
    exits = [vcpu["exits_total"] for vcpu in domain["vcpus"]]
    return None not in (domain["gang"], domain["run_seconds"], *exits) and sum(exits) > 0


def long_a_scopes_limits_may_be_set() -> None:
    """In gangd's unit and under its profile systemd can be asked to change a machine's scope, files of its
    cgroup can be written, and C may call Python back: what actuators need."""
    folder, probe = Path("/run/systemd/system/gangd.service.d"), Path(PACKAGES, "gangd_probe.py")
    folder.mkdir(parents=True)
    probe.write_text(PROBE)
    drop_in = folder / "probe.conf"
    drop_in.write_text("[Service]\nAppArmorProfile=gangd\nExecStartPre=/usr/bin/python3 -P -m gangd_probe\n")
    try:
        host.systemctl("daemon-reload")
        host.systemctl("restart", "gangd")
        assert "the probe is through" in host.journal()
    finally:
        drop_in.unlink()
        folder.rmdir()
        probe.unlink()
        host.systemctl("daemon-reload")
    host.systemctl("restart", "gangd")
    wait_for(scheduled, START_SECONDS, "the guest is a gang again")


def check_apparmor_denied_nothing() -> None:
    """The profiles allow everything done so far: the kernel logged no denial of theirs."""
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()
    denied = [line for line in said if 'apparmor="DENIED"' in line and 'profile="gangd' in line]
    assert denied == [], "\n".join(denied)


def check_the_journal_knows_the_guest() -> None:
    """`journalctl GANGD_DOMAIN=g` has what was done with it, and nothing else."""
    words = ["journalctl", "GANGD_DOMAIN=g", "-o", "json", "--no-pager"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    events = [entry["GANGD_EVENT"] for entry in entries]
    assert events[0] in ("marked", "gang") and {"marked", "gang"} <= set(events), events
    assert {entry["GANGD_UUID"] for entry in entries} == {guest().uuid}
    assert {entry["_SYSTEMD_UNIT"] for entry in entries} == {"gangd.service"}


def long_runbooks_are_served_and_their_commands_run() -> None:
    """The exporter serves the runbooks that alerts point to, and each command in them succeeds here."""
    commands: set[str] = set()
    for page in sorted(RUNBOOKS.glob("*.md")):
        with urllib.request.urlopen(f"{EXPORTER}/runbooks/{page.name}", timeout=60) as served:
            assert served.read() == page.read_bytes()
        commands |= set(re.findall("^    (.+)$", page.read_text(), re.MULTILINE))
    assert commands
    for command in sorted(commands):
        ended = {"gangctl top DOMAIN": " --batch -n 1", "gangctl event --loop --timestamp": " --timeout 1"}
        words = (command + ended.get(command, "")).replace("DOMAIN", "g")
        done = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=300, check=False)
        note(f"{done.returncode}  {words}")
        assert done.returncode == 0 or (command in ended and "nothing happened" in done.stderr), done.stderr


def check_reload() -> None:
    """`systemctl reload gangd` takes up a changed file without touching the guest; of a broken one the log
    names file, line and key, and nothing changes."""
    before = (guest().pid, host.systemctl("show", "--value", "--property", "MainPID", "gangd"))
    CONFIG.parent.mkdir()
    CONFIG.write_text("[scheduler]\nturn_us = 10000\n")
    begin = time.monotonic()
    host.systemctl("reload", "gangd")
    note(f"reloaded in {time.monotonic() - begin:.2f} s")
    wait_for(lambda: slot_us() == 10000, 10, "turns are 10 ms at most")
    CONFIG.write_text("[scheduler]\nturn_us = 'long'\n")
    host.systemctl("reload", "gangd")
    assert f"stays as it was: {CONFIG}:2: scheduler.turn_us: " in host.journal()
    assert host.systemctl("is-active", "gangd") == "active"
    CONFIG.unlink()
    host.systemctl("reload", "gangd")
    wait_for(lambda: slot_us() == 30000, 10, "it is 30 ms again")
    assert scheduled()
    assert (guest().pid, host.systemctl("show", "--value", "--property", "MainPID", "gangd")) == before


def slot_us() -> int:
    """Return the longest turn in microseconds, by gangd's own journal."""
    from gangd.actuate.journal import Journal

    entry = Journal(Path("/run/gangd/journal")).entries["gang", "domain/0"]
    return int(json.loads(entry.written or "{}").get("slot_us", 0))


def long_an_upgrade_disturbs_no_guest() -> None:
    """An upgrade to the same version restarts gangd; the guest is the same process and a gang again."""
    before, pid = (guest().domain.ID(), guest().pid), status_of("gangd")["Pid"]
    apt("install", "--reinstall", package())
    wait_for(lambda: status_of("gangd")["Pid"] != pid, START_SECONDS, "gangd was restarted")
    wait_for(scheduled, START_SECONDS, "the guest is a gang again")
    assert (guest().domain.ID(), guest().pid) == before
    assert guest().progress(1.0) > 0


def check_remove_gives_the_host_back() -> None:
    """`apt remove gangd`: the guest runs on as it was found, nothing of ours is in the kernel or runs."""
    apt("remove", "gangd")
    assert host.scheduler() == "disabled"
    assert host.our_programs() == []
    before, after = kept["settings"], guest().settings()
    assert {key for key in before if before[key] != after[key]} == set()
    assert states(["gangd", "gangd-exporter"]) == ["inactive"] * 2


def check_purge_leaves_nothing() -> None:
    """`apt purge gangd`: files are those from before, and the state directory is gone."""
    if "guest" in kept:
        kept.pop("guest").destroy()
    apt("purge", "gangd")  # the user stays, as Debian's policy has it
    left = files() - kept["before"]
    assert left == set(), sorted(left)
    assert not Path("/run/gangd").exists()
    assert not CONFIG.parent.exists()


if __name__ == "__main__":
    run(__file__, dict(globals()), lost=lost, fresh=fresh)
