# SPDX-License-Identifier: Apache-2.0
"""The daemon's life around one marked guest: kill -9, restart, stop, ejection, CPU hotplug, no libvirt.

The guest has to outlive all of it, and the host has to be found as it was in the end.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gang_policies.adaptive import POLICY
from gangd.actuate.journal import Journal
from gangd.bpf import object_path
from gangd.control.client import Client, connect
from gangd.errors import NoDaemon
from gangd.measure.probes import Probes
from gangd.measure.sampler import Sampler
from gangd.model.domain import NAMESPACE, Mode
from gangd.model.evidence import Conditions, Evidence, compare
from lab.guests import domains
from vm.checks.inside import direct, host, service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import URI, Guest, differences, prepare
from vm.checks.inside.threads import busy

CONFIG = "[daemon]\ninterval = 4\nmeasure_interval = 1\n"
JOURNAL = Path("/run/gangd/journal")
SNAPSHOT = Path("/var/lib/libvirt/images/g.memory")
METRICS = "http://127.0.0.1:9752/metrics"
GAP_SECONDS = 1.0  # without a scheduler, while one gives way to the next
REFUSED = "the kernel refused the scheduler"
RETURN_SECONDS = 90.0  # Python starts, the kernel verifies, and the guest wants the CPUs, too
FREE = ((0, 1), (0, 1))  # pins of the guest: only its owner makes any
RESIDENT_BYTES_MAX = 80 << 20
SOCKETS = ("libvirtd.socket", "libvirtd-ro.socket", "libvirtd-admin.socket")
LIBVIRT = (*SOCKETS, "libvirtd.service")

conn = prepare()
service.configure(CONFIG)
host.systemctl("restart", "gangd")
kept: dict[str, Any] = {}


def client() -> Client:
    """A connection to whatever gangd runs now."""
    return connect()


def guest() -> Guest:
    """The guest of all checks."""
    found: Guest = kept["guest"]
    return found


def fresh() -> None:
    """A new guest, pinned to both CPUs and marked with virsh."""
    host.systemctl("start", *LIBVIRT, "gangd")
    if "guest" in kept:
        reconnect()
        guest().destroy()
    kept["guest"] = Guest(conn, "g", "spin").start()
    guest().pin(0, 0, 1)
    guest().pin(1, 0, 1)
    kept["settings"] = guest().settings()
    stop_libvirt()  # it forgets an alias and finds a label by itself
    host.systemctl("start", *LIBVIRT)
    reconnect()
    kept["definitions"] = definitions()
    mark_with_virsh()


def virsh(*words: str) -> str:
    """Return virsh's output; raise if virsh fails."""
    return subprocess.run(["virsh", *words], check=True, capture_output=True, text=True).stdout


def gangctl(words: str) -> str:
    """Return what gangctl prints, whatever its exit status."""
    return subprocess.run(["gangctl", *words.split()], capture_output=True, text=True, check=False).stdout


def definitions() -> dict[str, str]:
    """The guest's, as libvirt gives them out: of now, of its next start, and in a snapshot of its memory."""
    virsh("snapshot-create-as", "g", "s", "--live", "--memspec", str(SNAPSHOT))
    try:
        snapshot = virsh("snapshot-dumpxml", "g", "s")
    finally:
        virsh("snapshot-delete", "g", "s", "--metadata")
        SNAPSHOT.unlink()
    found = {"live": virsh("dumpxml", "g"), "next start": virsh("dumpxml", "--inactive", "g")}
    for tag in ("domain", "inactiveDomain"):
        (found[f"{tag} of a snapshot"],) = re.findall(rf"<{tag}[ >].*</{tag}>", snapshot, re.DOTALL)
    return found


def mark_with_virsh() -> None:
    """Mark the guest without gangctl, in its configuration and live."""
    words = ["virsh", "metadata", "g", "--uri", NAMESPACE, "--key", "gangd", "--config", "--live"]
    subprocess.run([*words, "--set", '<gang policy="relaxed"/>'], check=True, capture_output=True)


def stop_libvirt() -> None:
    """The sockets first: while they listen, gangd's next question would start libvirtd again."""
    host.systemctl("stop", *SOCKETS)
    host.systemctl("stop", "libvirtd.service")


def lost() -> str | None:
    """Return why the guest does not count any more; libvirt is restarted first, as it has to tell."""
    stop_libvirt()
    host.systemctl("start", *LIBVIRT)
    reconnect()
    return guest().lost()


def scheduled() -> bool:
    """The guest is a gang: gangd counts its turns, in the scheduler that is loaded; no vCPU is pinned."""
    return host.scheduler() == "enabled" and guest().affinities() == FREE and answers(lambda _: has_turns())


def has_turns() -> bool:
    """gangd knows the guest as a gang."""
    return any(domain["gang"] and domain["gang"]["turns"] for domain in client().stats()["domains"])


def as_found() -> bool:
    """Nothing of the guest differs from before it was marked, and nothing of ours is in the kernel."""
    return host.scheduler() == "disabled" and guest().settings() == kept["settings"]


def gangd_pid() -> int:
    """The running daemon's."""
    return int(host.systemctl("show", "--value", "--property", "MainPID", "gangd"))


def answers(true: Callable[[dict[str, Any]], bool]) -> bool:
    """gangd answers, and its status is so."""
    try:
        return true(client().status())
    except NoDaemon:
        return False


def survives(before: tuple[int, int]) -> None:
    """The guest is the same process as before and gets on."""
    assert (guest().domain.ID(), guest().pid) == before
    assert guest().progress(1.0) > 0


def identity() -> tuple[int, int]:
    """Return the guest's libvirt ID and PID, both of which a restart would change."""
    return guest().domain.ID(), guest().pid


def check_marked_with_virsh_it_is_scheduled() -> None:
    """`virsh metadata` on a running guest is enough: gangd follows without being asked."""
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    assert kept["settings"]["pins"] == FREE


def check_metrics_are_what_prometheus_expects() -> None:
    """promtool finds nothing to complain about, and the counters are those gangctl shows."""
    client().refresh()
    host.systemctl("start", "gangd-exporter")  # started with gangd, but not waited for
    text = urllib.request.urlopen(METRICS, timeout=30).read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stdout and not checked.stderr
    samples = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert samples['gangd_backend_active{backend="sched_ext"}'] == "1.0"
    assert samples["gangd_plan_gangs"] == samples["gangd_libvirt_connected"] == "1.0"
    (domain,) = client().stats()["domains"]
    for name, key in (("turns_total", "turns"), ("run_seconds_total", "run_seconds")):
        scraped = float(samples[f'gangd_gang_{name}{{domain="g"}}'])
        assert 0 < scraped <= domain["gang"][key]
    reason = 'gangd_kvm_exits_total{domain="g",reason="external_interrupt",vcpu="0"}'
    assert 0 < float(samples[reason]) <= domain["vcpus"][0]["exits"]["external_interrupt"]


def check_memory() -> None:
    """The daemon stays below 80 MiB."""
    resident = client().status()["own"]["resident_bytes"]
    note(f"{resident / (1 << 20):.1f} MiB")
    assert 10 << 20 < resident < RESIDENT_BYTES_MAX


def check_restart_disturbs_no_guest() -> None:
    """`systemctl restart gangd`: the guest is the same process, got on all the while, and was a gang but for
    the moment in which one scheduler gives way to the next, which the verifier has accepted by then."""
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    before, pid, begin = identity(), gangd_pid(), host.now()
    watch, past = Watch(), len(scheduler_changes())
    restart = subprocess.Popen(["systemctl", "restart", "gangd"])
    while restart.poll() is None or len(scheduler_changes()) < past + 2:
        assert watch.look() - begin < RETURN_SECONDS, "no scheduler took the place of the one before"
    took = host.now() - begin
    assert restart.returncode == 0
    (ended, _), (came, _) = changes = scheduler_changes()[past:]
    assert [word for _, word in changes] == ["disabled", "enabled"]
    back = wait_for(scheduled, RETURN_SECONDS, "the guest is a gang again")
    note(f"after {took:.1f} s the next scheduler had the place, its counters {back:.1f} s later")
    note(f"no scheduler for {came - ended:.2f} s; longest standstill of the guest {watch.standstill:.2f} s")
    assert came - ended < GAP_SECONDS and watch.standstill < 3.0
    assert gangd_pid() != pid
    survives(before)


def scheduler_changes() -> list[tuple[float, str]]:
    """Return when (seconds, since the boot) the kernel "enabled" and "disabled" schedulers, by its log."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r'\[ *([\d.]+)\] sched_ext: BPF scheduler "\w+" (enabled|disabled)', log)
    return [(float(seconds), word) for seconds, word in found]


class Watch:
    """Looks at a guest all the while. standstill: the longest time in which it did not get on, seconds."""

    def __init__(self) -> None:
        self.standstill = 0.0
        self._count = guest().iterations()
        self._since = host.now()

    def look(self) -> float:
        """Look now, after a moment; returns the time."""
        time.sleep(0.1)
        now, count = host.now(), guest().iterations()
        if count != self._count:
            self._count, self._since = count, now
        self.standstill = max(self.standstill, now - self._since)
        return now


def check_a_refused_scheduler_leaves_the_one_before() -> None:
    """A new version whose scheduler the verifier refuses: the old one stays in force, with its gang, while
    status, dominfo and preflight say what is wrong. The version after it takes over as usual."""
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    before, past, place = identity(), len(scheduler_changes()), object_path("gang")
    with tempfile.NamedTemporaryFile() as broken:
        broken.write(unverifiable(place.read_bytes()))
        broken.flush()
        subprocess.run(["mount", "--bind", broken.name, place], check=True)
        try:
            host.systemctl("restart", "gangd")
            wait_for(
                lambda: answers(lambda s: REFUSED in s["backend"]["reason"]), RETURN_SECONDS, "it is refused"
            )
            said = {words: gangctl(words) for words in ("status", "dominfo g", "preflight")}
        finally:
            subprocess.run(["umount", place], check=True)
    note(client().status()["backend"]["reason"])
    assert len(scheduler_changes()) == past
    for words, text in said.items():
        assert ("verifier accepts the scheduler" if words == "preflight" else REFUSED) in text, text
    assert "Gangs cannot be scheduled on this host" in said["preflight"]
    assert "the scheduler of the gangd before is still loaded" in said["status"]
    host.systemctl("restart", "gangd")
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    survives(before)


def unverifiable(elf: bytes) -> bytes:
    """Return the object with an instruction that no machine has, the first one of gang_running()."""
    (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + size * number) for number in range(count)]
    *_, offset, _length = next(
        one for one in sections if elf.startswith(b"struct_ops/gang_running\0", sections[names][4] + one[0])
    )
    return elf[:offset] + b"\xff" * 8 + elf[offset + 8 :]


def check_kill_leaves_nothing_and_comes_back() -> None:
    """kill -9 in mid-schedule: the kernel takes the scheduler out within 5 s, the guest's settings are
    what they were, the restarted daemon picks the mark up again, and the guest never notices."""
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    before, pid = identity(), gangd_pid()
    assert Journal(JOURNAL).entries and not pins_to_undo()
    subprocess.run(["kill", "-9", str(pid)], check=True)
    gone = wait_for(lambda: host.scheduler() == "disabled", 5, "the scheduler is gone")
    found = wait_for(as_found, RETURN_SECONDS, "the guest's settings are what they were")
    back = wait_for(scheduled, RETURN_SECONDS, "the guest is a gang again")
    note(f"scheduler gone {gone:.1f} s, as found {found:.1f} s, a gang again {back:.1f} s later")
    assert gangd_pid() not in (0, pid)
    survives(before)


def check_sysrq_ejects_and_gangd_comes_back() -> None:
    """SysRq-S throws the scheduler out; gangd says why, loads it again, and the guest never notices."""
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")
    before, pid = identity(), gangd_pid()
    Path("/proc/sysrq-trigger").write_text("S")
    wait_for(lambda: host.scheduler() == "disabled", 5, "the scheduler is ejected")
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang again")
    wait_for(lambda: answers(lambda status: status["backend"]["active"]), 20, "gangd says it is active")
    status = client().status()
    note(status["backend"]["reason"])
    assert "ejected by the kernel" in status["backend"]["reason"]
    assert "SysRq" in status["backend"]["reason"] or "sysrq" in status["backend"]["reason"].lower()
    assert status["backend"]["detail"]["ejections"] >= 1
    assert "ejected by the kernel" in host.journal()
    assert gangd_pid() == pid
    survives(before)


def long_cpu_hotplug() -> None:
    """A CPU that goes and comes back under a running gang: the guest lives, also on the CPU that is left, and
    is a gang again with the CPU back; no vCPU is pinned meanwhile."""
    before, online = identity(), Path("/sys/devices/system/cpu/cpu1/online")
    online.write_text("0")
    try:
        wait_for(lambda: host.scheduler() == "disabled", RETURN_SECONDS, "the kernel ejects the scheduler")
        wait_for(lambda: host.scheduler() == "enabled", RETURN_SECONDS, "it is loaded for the CPU left")
        assert not pins_to_undo()
        survives(before)
    finally:
        online.write_text("1")
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang again")
    survives(before)


def pins_to_undo() -> list[str]:
    """Settings of gangd's journal that are affinities."""
    return [key for actuator, key in Journal(JOURNAL).entries if actuator == "affinity"]


def check_libvirt_may_be_away() -> None:
    """While libvirtd is stopped gangd waits, says so and keeps the gang; then it goes on."""
    process = guest().pid
    stop_libvirt()
    wait_for(lambda: answers(lambda s: s["libvirt"]["connected"] is False), RETURN_SECONDS, "gangd notices")
    status = client().status()
    note(status["libvirt"]["reason"])
    assert status["libvirt"]["reason"]
    assert status["domains"]["running"] == 1
    assert host.scheduler() == "enabled"
    assert "waiting for it" in host.journal()
    time.sleep(5.0)  # more than a full read: nothing may be undone for want of an answer
    assert host.scheduler() == "enabled"
    host.systemctl("start", *LIBVIRT)
    wait_for(lambda: answers(lambda s: s["libvirt"]["connected"]), RETURN_SECONDS, "gangd is connected again")
    reconnect()
    assert guest().pid == process
    wait_for(scheduled, RETURN_SECONDS, "the guest is a gang")


def check_definitions_differ_by_the_mark_alone() -> None:
    """After libvirtd was restarted, `virsh dumpxml` of a marked guest, `dumpxml --inactive` and both
    definitions in a snapshot of it are those from before the mark, and the mark. The pause that a snapshot
    takes loads no scheduler anew."""
    before = scheduler_changes()
    for what, text in definitions().items():
        unmarked, marks = re.subn(r"\n *<metadata>\s*<gangd:gang [^<>]*/>\s*</metadata>", "", text)
        assert marks == 1, f"{what}:\n{text}"
        assert unmarked == kept["definitions"][what], f"{what}:\n{text}\nwas\n{kept['definitions'][what]}"
    assert scheduled()
    assert scheduler_changes() == before


def reconnect() -> None:
    """Connect to libvirtd again: this script's own connection died with it, too."""
    global conn
    conn = domains.connect(URI)
    guest().domain = conn.lookupByName("g")


def check_stop_leaves_the_host_as_found() -> None:
    """`systemctl stop gangd`: pins, affinity, cgroups and classes as before the mark, no program of ours
    in the kernel, nothing in the journal, and the mark is kept."""
    before = identity()
    host.systemctl("stop", "gangd")
    changed = differences(kept["settings"], guest().settings())
    assert not changed, changed
    assert host.scheduler() == "disabled"
    assert host.our_programs() == []
    assert not Journal(JOURNAL).entries
    assert "gang" in guest().domain.XMLDesc()
    survives(before)


def check_a_limit_of_its_own_is_no_contention() -> None:
    """The vCPUs of a guest whose cpu.max holds them off run apart, and wait for nobody; beside two busy
    processes they wait for those. So `adaptive` says off of the first, and a gang of the second."""
    virsh("schedinfo", "g", "--live", "--set", "vcpu_period=100000", "vcpu_quota=30000")
    try:
        alone = evidence()
        with busy(2):
            beside = evidence()
    finally:
        virsh("schedinfo", "g", "--live", "--set", "vcpu_quota=-1")
    note(f"alone: {shares(alone)}; beside two busy processes: {shares(beside)}")
    assert alone.held_per_second > 1.0
    two = direct.domain("g", 1, [1, 2])
    assert POLICY.decide(two, alone).mode is Mode.OFF
    assert POLICY.decide(two, beside).mode is Mode.RELAXED


def evidence() -> Evidence:
    """Return what gangd, which does not run, would tell a policy of the guest."""
    domain = direct.domain("g", guest().pid, [tid for _, tid in sorted(guest().threads().items())])
    probes = Probes()
    probes.sync([domain])
    sampler = Sampler(probes, lambda uuid: None)
    time.sleep(2.0)  # the limit, or the others, are new
    before, begin = sampler.sample([domain])[domain.uuid], time.monotonic()
    time.sleep(5.0)
    after, seconds = sampler.sample([domain])[domain.uuid], time.monotonic() - begin
    probes.close("done")
    return replace(compare(before, after, seconds, seconds), conditions=Conditions(fair=True))


def shares(found: Evidence) -> str:
    """Return how much of its time a guest was apart, waited and was held off."""
    held = f"held off {found.held_per_second:.2f} s/s"
    return f"co-run {found.corun_ratio:.0%}, waited {found.waited_ratio:.0%}, {held}"


def long_a_confined_scope_is_widened_and_given_back() -> None:
    """`allowed_cpus = "widen"`: a guest that systemd keeps on one CPU gets room for both of its pins, and the
    weight of its mark; stopped, systemd says again what it did."""
    unit = Path(f"/proc/{guest().pid}/cgroup").read_text().split("machine.slice/")[1].split("/")[0]
    host.systemctl("set-property", "--runtime", unit, "AllowedCPUs=0")
    before, found = identity(), limits(unit)
    assert found[0] == ("AllowedCPUs=0",)
    service.configure(CONFIG + '[actuate]\nallowed_cpus = "widen"\n')
    try:
        host.systemctl("start", "gangd")
        wait_for(lambda: answers(lambda s: s["libvirt"]["connected"]), RETURN_SECONDS, "gangd is connected")
        client().mark("g", policy="balance", weight=300)
        wait_for(
            lambda: guest().affinities() == ((0,), (1,)), RETURN_SECONDS, "each vCPU has a CPU of its own"
        )
        note(f"{unit}: {found} -> {limits(unit)}")
        assert limits(unit) == (("AllowedCPUs=0-1",), ("CPUWeight=300",), "0-1", "300")
        survives(before)
    finally:
        host.systemctl("stop", "gangd")
        service.configure(CONFIG)
    assert limits(unit) == found
    survives(before)


def limits(unit: str) -> tuple[tuple[str, ...], tuple[str, ...], str, str]:
    """Return a scope's allowed CPUs and CPU weight by systemd, then by the kernel."""
    group = Path("/sys/fs/cgroup/machine.slice", unit)
    allowed, weight = (
        tuple(host.systemctl("show", "--property", name, unit).split())
        for name in ("AllowedCPUs", "CPUWeight")
    )
    return (
        allowed,
        weight,
        (group / "cpuset.cpus").read_text().strip(),
        (group / "cpu.weight").read_text().strip(),
    )


def check_without_a_daemon_gangctl_says_so() -> None:
    """gangctl without gangd: two lines, and how to start it."""
    done = subprocess.run(["gangctl", "status"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: gangd is not running on the system bus (systemctl start gangd)"
    )


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=lost, fresh=fresh)
