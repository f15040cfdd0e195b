# SPDX-License-Identifier: Apache-2.0
"""Bad input through gangctl and virsh: one clear sentence each, and nothing is lost.

No guest runs here: a domain need not run to be marked, refused or gone.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt

from gangd.errors import GangError, NoSuchDomain
from gangd.model.domain import NAMESPACE
from vm.checks.inside import service
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.guest import URI, Guest, prepare

HOSTILE = {
    "unknown policy name": '<gang policy="\\x1b[31mred"/>',
    "weight": '<gang weight="-1"/>',
    "attribute": '<gang polcy="relaxed"/>',
    "element": "<gang><script>alert(1)</script></gang>",
    "text": "<gang>relaxed</gang>",
    "other element": "<plank/>",
    "size": f'<gang policy="{"a" * 5000}"/>',
}
CONFIG = '[daemon]\ninterval = 5\n\n[scheduler]\nturn_us = "long"\n'

conn = prepare()
client = service.start()


def command(*words: str) -> tuple[int, str, list[str]]:
    """Status, output and lines of complaint of a program."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


@contextlib.contextmanager
def defined(name: str) -> Iterator[Guest]:
    """A domain that is not running, for as long as the body runs."""
    guest = Guest(conn, name, "spin")
    wait_for(lambda: name in listed(), 10, f"gangd knows {name}")
    try:
        yield guest
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            guest.domain.undefine()


def listed() -> dict[str, Any]:
    """Return all domains as gangd lists them."""
    return {domain["name"]: domain for domain in client.domains(all=True)["domains"]}


def set_metadata(guest: Guest, text: str | None) -> None:
    """Set or remove the gangd element as `virsh metadata` does."""
    key = "gangd" if text else None
    guest.domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, key, NAMESPACE, 0)


def check_unknown_domain_is_two_lines() -> None:
    """An unknown domain is answered in virsh's form: what failed, then why, status 1, nothing on stdout."""
    status, output, complaints = command("gangctl", "mark", "nope")
    assert (status, output) == (1, "")
    assert complaints == [
        "error: failed to mark domain 'nope'",
        "error: Domain not found: no domain with matching name 'nope'",
    ]
    # libvirt 11.3 prints the outer line only; older ones both
    status, output, virsh = command("virsh", "dominfo", "nope")
    note(f"virsh says: {virsh}")
    assert (status, output.strip()) == (1, "")
    assert virsh[0] == "error: failed to get domain 'nope'"


def check_unknown_domain_as_json() -> None:
    """An error is a document on stdout with --json, with a code for programs."""
    status, output, complaints = command("gangctl", "--json", "dominfo", "nope")
    assert (status, complaints) == (1, [])
    error = json.loads(output)["error"]
    assert error["code"] == "NoSuchDomain"
    assert "nope" in error["action"]


def check_marking_works_from_virsh_alone() -> None:
    """A mark stored with `virsh metadata` is a mark; taken away with virsh, it is none."""
    with defined("alone"):
        words = ["virsh", "metadata", "alone", "--uri", NAMESPACE, "--config"]
        assert command(*words, "--key", "gangd", "--set", '<gang policy="relaxed" weight="250"/>')[0] == 0
        wait_for(lambda: listed()["alone"]["marked"], 10, "gangd sees the mark")
        assert (listed()["alone"]["policy"], listed()["alone"]["weight"]) == ("relaxed", 250)
        assert command(*words, "--remove")[0] == 0
        wait_for(lambda: not listed()["alone"]["marked"], 10, "gangd sees that it is gone")


def check_hostile_metadata_is_refused_in_a_sentence() -> None:
    """The daemon refuses a domain with malformed metadata in one sentence, in list and plan, and a good
    mark beside it stays."""
    with defined("evil") as evil, defined("good"):
        client.mark("good")
        for what, text in HOSTILE.items():
            set_metadata(evil, text)
            wait_for(lambda: refused("evil"), 10, f"{what} is refused")
            reason = refused("evil")
            note(f"{what}: {reason}")
            assert reason.isprintable() and len(reason) < 300
            assert listed()["evil"]["schedule"] == "invalid mark"
            assert listed()["good"]["marked"]
            set_metadata(evil, None)
            wait_for(lambda: not refused("evil"), 10, f"{what} is forgotten")


def refused(name: str) -> str:
    """Return why the plan refuses a domain, "" when it does not."""
    found = [refusal["reason"] for refusal in client.plan()["refused"] if refusal["name"] == name]
    return str(found[0]) if found else ""


def check_hostile_metadata_is_shown_by_gangctl() -> None:
    """gangctl says `invalid mark` in the list and why in the plan; the metadata itself is not touched."""
    text = '<gang policy="x" onload="evil"/>'
    with defined("evil") as evil:
        words = ["virsh", "metadata", "evil", "--uri", NAMESPACE, "--key", "gangd", "--set", text, "--config"]
        assert command(*words)[0] == 0
        wait_for(lambda: refused("evil"), 10, "it is refused")
        status, output, _ = command("gangctl", "list", "--all")
        assert status == 0
        assert [line for line in output.splitlines() if "evil" in line and "invalid mark" in line]
        status, output, _ = command("gangctl", "plan")
        assert status == 0
        assert [line for line in output.splitlines() if "evil" in line and "'onload'" in line]
        assert 'onload="evil"' in evil.domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, 0)


def check_a_domain_may_vanish_between_two_calls() -> None:
    """A domain that was listed a moment ago and is gone is simply not found, by every command."""
    with defined("ghost") as ghost:
        assert "ghost" in listed()
        ghost.domain.undefine()
        with contextlib.suppress(NoSuchDomain):
            client.mark("ghost")
            raise AssertionError("marked a domain that is gone")
        wait_for(lambda: "ghost" not in listed(), 10, "it is gone from the list")
        for call in (client.unmark, client.dominfo, client.vcpuinfo, client.plan, client.stats):
            with contextlib.suppress(NoSuchDomain):
                call("ghost")
                raise AssertionError(f"{call.__name__} found a domain that is gone")


def check_a_domain_that_comes_and_goes() -> None:
    """Marked again and again while it is defined and undefined, it is marked or not found: no other
    answer, and gangd answers on."""
    stop = threading.Event()
    rounds = 0

    def flicker() -> None:
        nonlocal rounds
        own = libvirt.open(URI)
        while not stop.is_set():
            Guest(own, "flicker", "spin").domain.undefine()
            rounds += 1

    thread = threading.Thread(target=flicker)
    thread.start()
    wait_for(lambda: rounds > 0, 10, "it has come and gone")
    answers: dict[str, int] = {}
    try:
        for _ in range(60):
            try:
                client.mark("flicker")
                answers["marked"] = answers.get("marked", 0) + 1
            except GangError as error:
                assert not isinstance(error, AssertionError)
                words = [] if error.code == "NoSuchDomain" else error.lines()
                answer = " ".join([error.code, *words])
                answers[answer] = answers.get(answer, 0) + 1
    finally:
        stop.set()
        thread.join()
    note(f"{answers}, while it came and went {rounds} times")
    assert set(answers) <= {"marked", "NoSuchDomain"} and rounds > 10
    assert client.status()["libvirt"]["connected"]


def check_a_config_that_cannot_be_read() -> None:
    """gangd names file, line and key, and does not start."""
    path = Path("/tmp/bad.toml")
    path.write_text(CONFIG)
    status, output, complaints = command("gangd", "--config", str(path))
    assert (status, output) == (1, "")
    note(complaints[0])
    assert complaints[0].startswith(f"error: {path}:5: scheduler.turn_us: ")
    assert len(complaints) == 1


def check_who_is_not_root() -> None:
    """Everybody may look; marking is refused with a sentence, by polkit where it runs."""
    nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    with defined("mine"):
        status, output, complaints = command(*nobody, "gangctl", "mark", "mine")
        assert (status, output) == (1, "")
        note(f"{complaints[-1:]}")
        assert complaints in (
            ["error: failed to mark domain 'mine'", f"error: permission denied{why}"]
            for why in (", this needs root", ": polkit asks for a password (org.gangd.gangd1.manage)")
        )
        assert not listed()["mine"]["marked"]
        status, output, complaints = command(*nobody, "gangctl", "list", "--all")
        assert (status, complaints) == (0, [])
        assert "mine" in output


if __name__ == "__main__":
    run(__file__, dict(globals()))
