# SPDX-License-Identifier: Apache-2.0
"""Marked guests that are reset, saved, restored and destroyed while they are scheduled as gangs.

Two guests, so that there is always another that must not notice.
"""

from __future__ import annotations

import time

import host
import libvirt
import service
from check import note, run, wait_for
from counters import domain_xml
from guests import KERNEL, OPTIONS, Guest, first_loss, prepare

NAMES = ("g0", "g1")
COSTART_SECONDS = 3.0
FOLLOW_SECONDS = 30.0  # an event, a plan, pins by a libvirtd that waits for a CPU

conn = prepare()
client = service.start()
guests: dict[str, Guest] = {}
progress: dict[str, int] = {}  # of a guest that was saved, when it was


def fresh() -> None:
    """Two marked guests that a reset does not destroy; the marks are in their configurations, too."""
    for guest in guests.values():
        if guest.dom.hasManagedSaveImage():
            guest.dom.managedSaveRemove()
        guest.remove()
    for name in NAMES:
        guests[name] = Guest(conn, name, "spin")
        text = domain_xml(name, "spin", kernel=KERNEL, options=OPTIONS)
        identified = text.replace("</name>", f"</name><uuid>{guests[name].uuid}</uuid>", 1)
        conn.defineXML(identified.replace("<on_reboot>destroy", "<on_reboot>restart"))
        guests[name].start()
        client.mark(name)
    wait_for(lambda: gangs() == set(NAMES), FOLLOW_SECONDS, "both guests are gangs")


def lost() -> str | None:
    """Why a guest is of no use any more; one that was saved or destroyed here is not the lab's loss."""
    running = [guest for guest in guests.values() if guest.running]
    broken = [guest for guest in guests.values() if guest.dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED]
    return first_loss([*broken, *running])


def slots() -> dict[str, int]:
    """Slots of every gang so far."""
    return {name: found["slots"] for name, found in service.gang_counters(client).items()}


def gangs() -> set[str]:
    """The guests that have had slots."""
    return {name for name, number in slots().items() if number}


def gets_on(name: str, seconds: float = 1.0) -> None:
    """The guest runs, has slots and makes progress."""
    before = slots()[name]
    assert guests[name].progress(seconds) > 0
    wait_for(lambda: slots()[name] > before, 5, f"{name} has slots")


def scheduled_again(name: str) -> None:
    """Within some time it is a gang, with its own threads on the CPUs of the plan."""
    seconds = wait_for(lambda: name in gangs(), FOLLOW_SECONDS, f"{name} is a gang")
    note(f"a gang after {seconds:.1f} s")
    wait_for(lambda: guests[name].pins() == ((0,), (1,)), FOLLOW_SECONDS, f"{name} is pinned")
    gets_on(name)


def saved() -> int:
    """Save g0 unless it is; its iterations until then."""
    guest = guests["g0"]
    if guest.running:
        progress["g0"] = guest.iterations()
        guest.dom.managedSave()
    return progress["g0"]


def check_reset_mid_slot() -> None:
    """`virsh reset` of a marked guest in mid-slot: it begins anew in the same process and is still a gang;
    the other guest gets on."""
    guest = guests["g0"]
    before, pid = guest.iterations(), guest.pid
    guest.dom.reset(0)
    wait_for(lambda: 0 < guest.iterations() < before, 20, "the guest has begun anew")
    assert guest.pid == pid
    scheduled_again("g0")
    gets_on("g1")


def check_saved_mid_slot() -> None:
    """A marked guest is saved in mid-slot: it is no gang any more, the other has the CPUs and stays one."""
    note(f"saved after {saved()} iterations")
    assert not guests["g0"].running
    wait_for(lambda: "g0" not in slots(), FOLLOW_SECONDS, "the saved guest is no gang")
    assert host.scheduler() == "enabled"
    gets_on("g1")


def check_restored() -> None:
    """A marked guest that is saved in mid-slot and restored goes on where it was, by the mark in its
    configuration it is a gang again, and nine of ten of its slots are co-started."""
    guest = guests["g0"]
    before = saved()
    guest.dom.create()
    note(f"saved after {before} iterations, now {guest.iterations()}")
    wait_for(lambda: guest.iterations() > before, 20, "the guest goes on where it was")
    scheduled_again("g0")
    gets_on("g1")
    one = service.gang_counters(client)["g0"]
    time.sleep(COSTART_SECONDS)
    two = service.gang_counters(client)["g0"]
    number, started = two["slots"] - one["slots"], two["costarted_slots"] - one["costarted_slots"]
    note(f"{started} of {number} slots co-started")
    assert number > 10
    assert started >= 0.9 * number


def check_destroyed_mid_slot() -> None:
    """A marked guest is destroyed in mid-slot: the other gets on as a gang, and when that one is destroyed,
    too, nothing of ours is left in the kernel."""
    assert guests["g0"].running and guests["g1"].running
    guests["g0"].dom.destroy()
    wait_for(lambda: "g0" not in slots(), FOLLOW_SECONDS, "the destroyed guest is no gang")
    assert host.scheduler() == "enabled"
    gets_on("g1")
    guests["g1"].dom.destroy()
    wait_for(lambda: host.scheduler() == "disabled", FOLLOW_SECONDS, "the scheduler is unloaded")
    wait_for(lambda: not host.our_programs(), FOLLOW_SECONDS, "the probes are unloaded")


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=lost, fresh=fresh)
