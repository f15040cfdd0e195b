# SPDX-License-Identifier: Apache-2.0
"""Marked guests that are reset or reset themselves, suspended, pinned by hand, given a vCPU, saved, restored
and destroyed while they are scheduled as gangs.

Two guests, so that there is always another that must not notice.
"""

from __future__ import annotations

import subprocess
import time

import libvirt

from lab.guests.counters import domain_xml
from vm.checks.inside import host, service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import KERNEL, OPTIONS, Guest, Guests, first_loss

NAMES = ("g0", "g1")
COSTART_SECONDS = 3.0
INTERVAL_SECONDS = 15  # between full reads: no event tells of a new vCPU
FULL_READ_SECONDS = INTERVAL_SECONDS + 30.0
RESETS, RESET_SECONDS, REBOOT_UNITS = 3, 60.0, 200_000
FOLLOW_SECONDS = 30.0  # an event, a plan, an order by a daemon that waits for a CPU
LOAD_SECONDS = 90.0  # the same, and the kernel verifies the scheduler
CPUS, WHOLE = (0, 1), 0.8

guests = Guests()
service.configure(f"[daemon]\ninterval = {INTERVAL_SECONDS}\n")
client = service.start("restart")
progress: dict[str, int] = {}  # of a guest that was saved, when it was


def fresh() -> None:
    """Two marked guests that a reset does not destroy; the marks are in their configurations, too."""
    for guest in guests.values():
        if guest.domain.hasManagedSaveImage():
            guest.domain.managedSaveRemove()
    guests.keep_only()
    for name in NAMES:
        guests[name] = Guest(guests.conn, name, "spin")
        text = domain_xml(name, "spin", kernel=KERNEL, options=OPTIONS)
        identified = text.replace("</name>", f"</name><uuid>{guests[name].uuid}</uuid>", 1)
        guests.conn.defineXML(identified.replace("<on_reboot>destroy", "<on_reboot>restart"))
        guests[name].start()
        client.mark(name, policy="relaxed")
    wait_for(lambda: gangs() == set(NAMES), LOAD_SECONDS, "both guests are gangs")


def lost() -> str | None:
    """Return why a guest does not count any more; one that was saved or destroyed here is no loss."""
    running = [guest for guest in guests.values() if guest.running]
    broken = [guest for guest in guests.values() if guest.domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED]
    return first_loss([*broken, *running])


def turns() -> dict[str, int]:
    """Turns of every gang so far."""
    return {name: found["turns"] for name, found in service.gang_counters(client).items()}


def gangs() -> set[str]:
    """The guests that have had turns."""
    return {name for name, number in turns().items() if number}


def gets_on(name: str, seconds: float = 1.0) -> None:
    """The guest runs, has turns and makes progress."""
    before = turns()[name]
    assert guests[name].progress(seconds) > 0
    wait_for(lambda: turns()[name] > before, 5, f"{name} has turns")


def scheduled_again(name: str) -> None:
    """Fail unless the guest is a gang within FOLLOW_SECONDS and is not pinned."""
    seconds = wait_for(lambda: name in gangs(), FOLLOW_SECONDS, f"{name} is a gang")
    note(f"a gang after {seconds:.1f} s")
    assert guests[name].affinities() == (CPUS, CPUS)
    gets_on(name)


def turns_are_whole(name: str) -> None:
    """Fail unless four of five of the guest's turns are whole within COSTART_SECONDS."""
    one = service.gang_counters(client)[name]
    time.sleep(COSTART_SECONDS)
    two = service.gang_counters(client)[name]
    number, whole = two["turns"] - one["turns"], two["whole"] - one["whole"]
    note(f"{name}: {whole} of {number} turns whole")
    assert number > 10
    assert whole >= WHOLE * number


def redefined(name: str, cpus: int, maximum: int, **options: int) -> Guest:
    """A guest of another configuration than fresh() gives it, running and marked, in its place."""
    guests.pop(name).destroy()
    guests[name] = guest = Guest(guests.conn, name, "spin", cpus=cpus, **options)
    text = domain_xml(name, "spin", cpus=cpus, kernel=KERNEL, options={**OPTIONS, **options})
    text = text.replace("</name>", f"</name><uuid>{guest.uuid}</uuid>", 1)
    text = text.replace(f'<vcpu placement="static">{cpus}<', f'<vcpu current="{cpus}">{maximum}<')
    guests.conn.defineXML(text.replace("<on_reboot>destroy", "<on_reboot>restart"))
    guest.start()
    client.mark(name, policy="relaxed")
    return guest


def saved() -> int:
    """Save g0 unless it is; its iterations until then."""
    guest = guests["g0"]
    if guest.running:
        progress["g0"] = guest.iterations()
        guest.domain.managedSave()
    return progress["g0"]


def check_reset_mid_turn() -> None:
    """`virsh reset` of a marked guest in mid-turn: it begins anew in the same process and is still a gang;
    the other guest gets on."""
    guest = guests["g0"]
    before, pid = guest.iterations(), guest.pid
    guest.domain.reset(0)
    wait_for(lambda: 0 < guest.iterations() < before, 20, "the guest has begun anew")
    assert guest.pid == pid
    scheduled_again("g0")
    gets_on("g1")


def check_suspended_and_resumed() -> None:
    """`virsh suspend` of a marked guest in mid-turn: it stands still and the other gets on; `virsh resume`:
    it goes on where it was and four of five of its turns are whole."""
    guest = guests["g0"]
    guest.domain.suspend()
    before = guest.iterations()
    gets_on("g1", 2.0)
    assert guest.iterations() == before
    guest.domain.resume()
    wait_for(lambda: guest.iterations() > before, 20, "the guest goes on where it was")
    scheduled_again("g0")
    gets_on("g1")
    turns_are_whole("g0")


def long_pinned_by_hand_while_it_runs() -> None:
    """`virsh vcpupin` of a running gang: gangd leaves the pins as they are and the guest runs there: it gets
    on, and so does the other. Unmarked it keeps them."""
    guest, pinned = guests["g0"], ((1,), (0,))
    scheduled_again("g0")
    for vcpu, (cpu,) in enumerate(pinned):
        words = ["virsh", "vcpupin", "g0", str(vcpu), str(cpu), "--live"]
        subprocess.run(words, check=True, capture_output=True)
    time.sleep(2 * INTERVAL_SECONDS)  # gangd has read all anew, and could have changed it
    assert guest.pins() == pinned
    gets_on("g0")
    gets_on("g1")
    for vcpu, tid in guest.threads().items():
        assert (host.processor(guest.pid, tid),) == pinned[vcpu]
    client.unmark("g0")
    assert guest.pins() == pinned
    assert guest.progress(1.0) > 0
    for vcpu in (0, 1):
        guest.pin(vcpu, *CPUS)
    client.mark("g0", policy="relaxed")
    scheduled_again("g0")


def long_it_resets_itself() -> None:
    """A marked guest that resets itself, again and again and wherever in a turn that is, begins anew each
    time in the same process and stays a gang; the other guest gets on."""
    guest = redefined("g0", 2, 2, reboot=REBOOT_UNITS)
    wait_for(lambda: "g0" in gangs(), FOLLOW_SECONDS, "g0 is a gang")
    pid, begins, last, end = guest.pid, 0, guest.iterations(), host.now() + RESET_SECONDS
    while begins < RESETS:
        assert host.now() < end, f"{begins} resets in {RESET_SECONDS:g} s"
        count = guest.iterations()
        begins += count < last
        last = count
        time.sleep(0.05)
    note(f"{begins} resets seen")
    assert guest.pid == pid
    before = turns()["g0"]
    wait_for(lambda: turns()["g0"] > before, FOLLOW_SECONDS, "g0 has turns")
    wait_for(lambda: guest.progress(0.1) > 0, FOLLOW_SECONDS, "g0 counts, until its next reset")
    gets_on("g1")


def check_a_hot_added_vcpu() -> None:
    """A marked guest of one vCPU is refused, for it has no siblings to run with. One that is plugged into it
    (`virsh setvcpus --live`) makes it a gang at the next full read: four of five of its turns are whole, and
    by the guest's own count both get on."""
    guest = redefined("g0", 1, 2, grow=1)
    assert len(guest.threads()) == 1 and not client.plan("g0")["gangs"]
    guest.domain.setVcpusFlags(2, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    begin = host.now()
    wait_for(lambda: len(guest.counters().per_cpu) == 2, 20, "the guest has started its new vCPU")
    wait_for(lambda: client.plan("g0")["gangs"], FULL_READ_SECONDS, "it is planned")
    note(f"planned {host.now() - begin:.0f} s after it was plugged in")
    wait_for(lambda: "g0" in gangs(), FOLLOW_SECONDS, "g0 is a gang")
    assert guest.affinities() == (CPUS, CPUS)
    before = guest.counters().per_cpu
    turns_are_whole("g0")
    assert all(new > old for old, new in zip(before, guest.counters().per_cpu, strict=True))
    gets_on("g1")
    fresh()


def check_saved_mid_turn() -> None:
    """A marked guest is saved in mid-turn: it is no gang any more, the other has the CPUs and stays one."""
    note(f"saved after {saved()} iterations")
    assert not guests["g0"].running
    wait_for(lambda: "g0" not in turns(), FOLLOW_SECONDS, "the saved guest is no gang")
    assert host.scheduler() == "enabled"
    gets_on("g1")


def check_restored() -> None:
    """A marked guest that is saved in mid-turn and restored goes on where it was, by the mark in its
    configuration it is a gang again, and four of five of its turns are whole."""
    guest = guests["g0"]
    before = saved()
    guest.domain.create()
    note(f"saved after {before} iterations, now {guest.iterations()}")
    wait_for(lambda: guest.iterations() > before, 20, "the guest goes on where it was")
    scheduled_again("g0")
    gets_on("g1")
    turns_are_whole("g0")


def check_reverted_to_a_snapshot() -> None:
    """A marked guest goes back in mid-turn to a snapshot of its memory from before it was marked, and is no
    gang; then to one from when it was one, and four of five of its turns are whole. The other gets on."""
    guest = guests["g0"]
    client.unmark("g0")
    snapshot("unmarked")
    client.mark("g0", policy="relaxed")
    scheduled_again("g0")
    snapshot("marked")
    try:
        for name, gang in (("unmarked", False), ("marked", True)):
            pid = guest.pid
            subprocess.run(["virsh", "snapshot-revert", "g0", name], check=True, capture_output=True)
            assert guest.running and guest.pid != pid and guest.progress(1.0) > 0
            if gang:
                scheduled_again("g0")
                turns_are_whole("g0")
            else:
                wait_for(lambda: "g0" not in turns(), FOLLOW_SECONDS, "it is no gang")
            gets_on("g1")
    finally:
        for name in ("unmarked", "marked"):
            words = ["virsh", "snapshot-delete", "g0", name, "--metadata"]
            subprocess.run(words, check=True, capture_output=True)
            (KERNEL.parent / name).unlink()


def snapshot(name: str) -> None:
    """Take a live snapshot of g0, which runs on."""
    words = ["--live", "--memspec", str(KERNEL.parent / name)]
    subprocess.run(["virsh", "snapshot-create-as", "g0", name, *words], check=True, capture_output=True)


def check_destroyed_mid_turn() -> None:
    """A marked guest is destroyed in mid-turn: the other gets on as a gang, and when that one is destroyed,
    too, nothing of ours is left in the kernel."""
    assert guests["g0"].running and guests["g1"].running
    guests["g0"].domain.destroy()
    wait_for(lambda: "g0" not in turns(), FOLLOW_SECONDS, "the destroyed guest is no gang")
    assert host.scheduler() == "enabled"
    gets_on("g1")
    guests["g1"].domain.destroy()
    wait_for(lambda: host.scheduler() == "disabled", FOLLOW_SECONDS, "the scheduler is unloaded")
    wait_for(lambda: not host.our_programs(), FOLLOW_SECONDS, "the probes are unloaded")


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=lost, fresh=fresh)
