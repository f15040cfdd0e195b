# SPDX-License-Identifier: Apache-2.0
"""Marked guests that are reset and saved while they are scheduled as gangs.

Two guests, so that there is always another that must not notice.
"""

from __future__ import annotations

from typing import Any

import host
import libvirt
from check import note, run, wait_for
from counters import domain_xml
from guests import KERNEL, OPTIONS, Guest, prepare

from gangd.control.client import connect

NAMES = ("g0", "g1")
FOLLOW_SECONDS = 30.0  # an event, a plan, pins by a libvirtd that waits for a CPU

conn = prepare()
host.systemctl("start", "gangd")
client = connect()
client.status()  # a connection that never spoke is dropped by the bus after 30 s
guests: dict[str, Guest] = {}


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
    return next(filter(None, (guest.lost() for guest in [*broken, *running])), None)


def slots() -> dict[str, int]:
    """Slots of every gang so far."""
    found: list[dict[str, Any]] = client.stats()["domains"]
    return {each["name"]: each["gang"]["slots"] for each in found if each["gang"]}


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
    guest = guests["g0"]
    note(f"saved after {guest.iterations()} iterations; {slots()}")
    guest.dom.managedSave()
    assert not guest.running
    wait_for(lambda: "g0" not in slots(), FOLLOW_SECONDS, "the saved guest is no gang")
    assert host.scheduler() == "enabled"
    gets_on("g1")


if __name__ == "__main__":
    fresh()
    run(__file__, dict(globals()), lost=lost, fresh=fresh)
