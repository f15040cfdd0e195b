# SPDX-License-Identifier: Apache-2.0
"""The server, the client and gangctl over a real bus, and callers who mean harm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangd.control.client import Client, connect
from gangd.errors import GangError, InvalidArgument, NoDaemon, NoSuchDomain, NotMarked, NotRunning
from gangd.model.affect import Affect
from host.system.dbus_fixtures import (
    NOBODY,
    POLICY,
    FakeDaemon,
    busctl,
    call,
    fake_gangd,
    gangctl,
    interrupted,
    monitor,
    private_bus,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")

PREFIX = "org.gangd.Gangd1.Error."


def sent(address: str, method: str, *arguments: str) -> str:
    """The reply or error of a call made with dbus-send, error name included."""
    tool = shutil.which("dbus-send")
    if tool is None:
        pytest.skip("dbus-send is not installed")
    command = [tool, f"--bus={address}", "--print-reply", "--dest=org.gangd.Gangd1", "/org/gangd/Gangd1"]
    done = subprocess.run(
        [*command, f"org.gangd.Gangd1.{method}", *arguments], capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_every_document_arrives(client: Client) -> None:
    """Each read-only method answers with a document of schema 1."""
    documents = [client.domains(True), client.dominfo("web"), client.vcpuinfo("3"), client.topology()]
    documents += [client.plan(), client.plan("db"), client.stats(), client.stats("web"), client.status()]
    documents += [client.advise(), client.advise("web")]
    assert [d["schema"] for d in documents] == [1] * 11
    assert {d["name"] for d in documents[0]["domains"]} >= {"web", "db", "evil\x1b[31m\u202e"}


def test_mark_and_unmark(client: Client) -> None:
    """A mark made over the bus is there, and gone again."""
    marked = client.mark("db", "strict", 200)["domain"]
    assert (marked["policy"], marked["weight"]) == ("strict", 200)
    assert client.set("db", weight=7)["domain"]["weight"] == 7
    assert client.unmark("db", Affect(config=True, live=True))["domain"]["marked"] is False
    client.refresh()


def test_undo_and_resume(client: Client) -> None:
    """Both cross the bus, of one domain and of all."""
    assert client.undo("web")["domains"][0]["schedule"] == "undone"
    assert client.resume("web")["domains"][0]["schedule"] == "relaxed"
    assert client.undo(None)["undone"] == 2
    assert [d["name"] for d in client.resume(None)["domains"]] == ["web"]


def test_smt(client: Client) -> None:
    assert client.set_smt("off")["offline"] == [2, 3]
    assert client.smt()["prior"] == "on"


def test_errors_cross_the_bus_whole(client: Client) -> None:
    """Class, action and cause of an error are those the daemon raised."""
    with pytest.raises(NoSuchDomain) as caught:
        client.mark("nope")
    assert caught.value.lines() == [
        "failed to mark domain 'nope'",
        "Domain not found: no domain with matching name 'nope'",
    ]


def test_error_names_on_the_bus(address: str, daemon: FakeDaemon) -> None:
    """Other programs see the code in the D-Bus error name."""
    assert f"Error {PREFIX}NoSuchDomain: failed to show domain 'x'\n" in sent(
        address, "DomainInfo", "string:x"
    )
    assert f"Error {PREFIX}InvalidArgument: failed to show" in sent(address, "DomainInfo", "string: ")


def test_inner_failures_say_nothing(client: Client, daemon: FakeDaemon, tmp_path: Path) -> None:
    """The daemon logs an error that is not a GangError, and answers with one neutral sentence."""
    daemon.say("crash")
    with pytest.raises(GangError) as caught:
        client.mark("web")
    assert type(caught.value) is GangError
    assert "secret" not in str(caught.value.lines())
    assert "secret detail" in (tmp_path / "gangd.log").read_text()
    assert client.status()["schema"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("Mark", "sa{sv}", "web", "1", "colour", "s", "red"),
        ("Mark", "sa{sv}", "web", "1", "weight", "s", "100"),
        ("Mark", "sa{sv}", "web", "1", "weight", "i", "-1"),
        ("Mark", "sa{sv}", "web", "1", "weight", "u", "0"),
        ("Mark", "sa{sv}", "web", "1", "weight", "u", "4294967295"),
        ("Mark", "sa{sv}", "web", "1", "policy", "s", ""),
        ("Mark", "sa{sv}", "web", "1", "policy", "as", "1", "relaxed"),
        ("Mark", "sa{sv}", "web", "1", "policy", "s", "no such policy"),
        ("Mark", "sa{sv}", "x" * 5000, "0"),
        ("Mark", "sa{sv}", "web", "1", "live", "s", "yes"),
        ("Set", "sa{sv}", "web", "0"),
        ("Unmark", "sa{sv}", "", "0"),
        ("Undo", "sa{sv}", "", "0"),
        ("Undo", "sa{sv}", "web", "1", "all", "b", "true"),
        ("SetSmt", "sa{sv}", "forceoff", "0"),
        ("VcpuInfo", "s", "y" * 100000),
        ("Plan", "s", "z" * 2000),
    ],
)
def test_hostile_values_are_refused(address: str, daemon: FakeDaemon, words: tuple[str, ...]) -> None:
    """Wrong types, sizes and options are refused in words, and the daemon lives on."""
    done = call(address, *words)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr and len(done.stderr) < 1000
    assert call(address, "Status").returncode == 0


@pytest.mark.parametrize(
    "words", [("Mark", "s", "web"), ("Status", "s", "x"), ("List", "s", "all"), ("Nope",)]
)
def test_wrong_signatures_are_refused(address: str, daemon: FakeDaemon, words: tuple[str, ...]) -> None:
    """sd-bus turns away what does not fit the signature before any of our code runs."""
    assert call(address, *words).returncode != 0
    assert call(address, "Status").returncode == 0


def test_huge_string(client: Client) -> None:
    """A megabyte of name costs a refusal, not the daemon."""
    with pytest.raises(InvalidArgument, match="longer than"):
        client.dominfo("x" * 1_000_000)
    assert client.status()["schema"] == 1


@pytest.mark.parametrize("name", ["a\0b", "\udcff", "\ud800"])
def test_text_dbus_cannot_carry(client: Client, name: str) -> None:
    """Such text is refused before it is sent."""
    with pytest.raises(InvalidArgument):
        client.dominfo(name)


def test_raw_garbage_on_the_socket(address: str, daemon: FakeDaemon) -> None:
    """Bytes that are no D-Bus, and a NUL inside a string, end only their own connection."""
    path = address.partition("path=")[2].partition(",")[0]
    for data in (b"\0" * 64, b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n" + b"l\1\0\1" + b"\xff" * 64):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(path)
            raw.sendall(data)
    assert call(address, "Status").returncode == 0


def test_advise_tells_scripts_by_its_status(address: str, daemon: FakeDaemon) -> None:
    """Everyone may ask; the status is 3 while a domain would gain that nobody marked, else 0, 1 on errors."""
    before = gangctl(address, "advise", user=NOBODY)
    assert (before.returncode, before.stderr) == (0, "")
    rows = {line.split()[0]: line for line in before.stdout.splitlines()[2:]}
    assert rows.keys() == {"web", "evil\\x1b[31m\\xe2\\x80\\xae"} and "   is a gang   " in rows["web"]
    daemon.say("crowd")
    crowded = gangctl(address, "advise", user=NOBODY)
    assert (crowded.returncode, crowded.stderr) == (3, "")
    assert [" would gain " in line for line in crowded.stdout.splitlines()[2:]] == [True, False]
    assert gangctl(address, "advise", "web").returncode == 0
    assert gangctl(address, "advise", "nope").returncode == 1


def test_a_guest_before_its_mark_and_since(address: str, daemon: FakeDaemon, client: Client) -> None:
    """A mark over the bus takes the reading; everyone may compare, and learns why there is none."""
    none = gangctl(address, "stats", "web", "--since", "mark", user=NOBODY)
    assert (none.returncode, none.stdout) == (1, "")
    assert "error: gangd has no reading from before its mark: " in none.stderr
    client.unmark("web")
    with pytest.raises(NotMarked):
        client.since("web")
    client.mark("web", "relaxed")
    daemon.say("run")
    shown = gangctl(address, "stats", "web", "--since", "mark", user=NOBODY)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(" 'web': marked 10 s ago, policy relaxed; before: 2 h of its life\n\n")
    assert [line.split()[0] for line in shown.stdout.splitlines()[4:6]] == ["Co-run", "Co-stop"]
    with pytest.raises(NotRunning):
        client.since("db")


def test_others_may_look_but_not_touch(address: str, daemon: FakeDaemon) -> None:
    """Every user reads without polkit, only root changes; what is not in the policy file stays closed."""
    assert call(address, "Status", user=NOBODY).returncode == 0
    assert call(address, "Plan", "s", "web", user=NOBODY).returncode == 0
    assert '\\"selectors\\":[]' in call(address, "Profiles", user=NOBODY).stdout
    for words in (
        ("Mark", "sa{sv}", "web", "0"),
        ("Unmark", "sa{sv}", "web", "0"),
        ("Undo", "sa{sv}", "web", "0"),
        ("Resume", "sa{sv}", "web", "0"),
        ("Refresh",),
    ):
        assert "denied" in call(address, *words, user=NOBODY).stderr.lower()
    done = gangctl(address, "unmark", "web", user=NOBODY)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: failed to unmark domain 'web'",
        "error: permission denied, this needs root",
    ]


@contextmanager
def bus_with(policy: str) -> Iterator[str]:
    """The address of a bus under a policy of the test's own."""
    folder = Path(tempfile.mkdtemp(prefix="gangd-bus-"))
    file = folder / "policy.conf"
    file.write_text(f"<busconfig>{policy}</busconfig>")
    try:
        with private_bus(folder, file) as (address, _):
            yield address
    finally:
        shutil.rmtree(folder)


def test_lax_policy_does_not_open_the_door(tmp_path: Path) -> None:
    """gangd itself refuses changes to others when the policy file would allow everything."""
    lax = '<policy context="default"><allow own="*"/><allow send_destination="*"/></policy>'
    with bus_with(lax) as address, fake_gangd(address, tmp_path / "log"):
        assert call(address, "Status", user=NOBODY).returncode == 0
        assert call(address, "Unmark", "sa{sv}", "web", "0", user=NOBODY).returncode != 0
        assert call(address, "Unmark", "sa{sv}", "web", "0").returncode == 0


def test_a_gangd_that_cannot_be_started_is_not_running() -> None:
    """gangd is not running where the bus tries to start it, and systemd is not there or does not know it."""
    services = POLICY.parent
    with bus_with(f"<servicedir>{services}</servicedir><include>{POLICY}</include>") as address:
        listed = busctl(
            address, "call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "ListActivatableNames"
        )
        assert "org.gangd.Gangd1" in listed.stdout
        for user in (None, NOBODY):
            done = gangctl(address, "unmark", "web", user=user)
            assert done.stderr.splitlines()[-1].startswith("error: gangd is not running")


LOOKS = (
    *("status", "list", "dominfo web", "vcpuinfo web", "topology", "plan", "stats", "policy-list"),
    *("policy-show relaxed", "profile-list", "smt", "top --batch -n 1", "event", "event web", "undo --all"),
)
CHANGES = ("mark web", "set web --weight 5", "unmark web", "smt off")


@pytest.mark.parametrize("line", [*LOOKS, *CHANGES])
def test_only_a_change_starts_gangd(tmp_path: Path, line: str) -> None:
    """After `systemctl stop gangd` it stays stopped, whoever looks: one sentence says that it does not run.
    An undo has nothing to put back then."""
    started = tmp_path / "started"
    program = tmp_path / "gangd"
    program.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    program.chmod(0o755)
    file = tmp_path / "org.gangd.Gangd1.service"
    file.write_text(f"[D-BUS Service]\nName=org.gangd.Gangd1\nExec={program}\n")
    with bus_with(f"<servicedir>{tmp_path}</servicedir><include>{POLICY}</include>") as address:
        assert gangctl(address, "--complete", "dominfo", "").stdout == ""
        done = gangctl(address, *line.split())
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.splitlines()[1:] == [
            f"error: gangd is not running at {address} (systemctl start gangd)"
        ]
        assert started.exists() == (line in CHANGES)


def test_bus_activation_names_the_alias_of_the_unit() -> None:
    """The file for the bus and the unit agree on the alias."""
    unit = (POLICY.parent / "gangd.service").read_text().splitlines()
    file = (POLICY.parent / "org.gangd.Gangd1.service").read_text().splitlines()
    (alias,) = [line.partition("=")[2] for line in unit if line.startswith("Alias=")]
    assert f"SystemdService={alias}" in file and "Name=org.gangd.Gangd1" in file
    assert "BusName=org.gangd.Gangd1" in unit


def test_properties_and_their_signals(address: str, daemon: FakeDaemon) -> None:
    """Connected is a property, and its change is signalled."""
    read = ("get-property", "org.gangd.Gangd1", "/org/gangd/Gangd1", "org.gangd.Gangd1")
    values = [
        json.loads(busctl(address, *read, p).stdout)["data"] for p in ("Version", "Backend", "Connected")
    ]
    assert values == ["0.1.0", "sched_ext", True]
    with monitor(address, "type='signal',member='PropertiesChanged'") as seen:
        daemon.say("disconnect")
        told = seen.until('string "Connected"', "boolean false")
    assert "Backend" not in told


def test_gangctl_top_and_shell(address: str, daemon: FakeDaemon) -> None:
    daemon.say("run")
    shown = gangctl(address, "top", "--batch", "-n", "2", "--interval", "0.1", "-q")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split()[0] for line in shown.stdout.splitlines() if line] == [
        "web",
        "evil\\x1b[31m\\xe2\\x80\\xae",
    ] * 2
    both = gangctl(address, "-c", "qemu:///system", "dominfo web; unmark web")
    assert both.returncode == 0 and both.stdout.endswith("Domain 'web' unmarked\n")
    assert gangctl(address, "--complete", "dominfo", "").stdout.splitlines()[-2:] == ["db", "web"]


@pytest.fixture
def watched() -> Iterator[str]:
    """The address of a bus on which root may see the calls of others, as with Debian's system.conf."""
    able = 'send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Monitoring"'
    text = f'<include>{POLICY}</include><policy user="root"><allow {able}/></policy>'
    with bus_with(text) as address:
        yield address


@pytest.mark.parametrize("words", [("List", "list"), ("Mark", "mark", "web")], ids=lambda words: words[0])
def test_ctrl_c_ends_a_wait_for_gangd(watched: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    """gangctl ends at once, although gangd does not answer."""
    with fake_gangd(watched, tmp_path / "log") as daemon:
        daemon.process.send_signal(signal.SIGSTOP)
        with interrupted(watched, *words) as ending:
            assert ending.wait(10) == 1


def test_compare_waits_for_the_mark_that_ctrl_c_ended(watched: str, tmp_path: Path) -> None:
    """gangd answers other calls before it has marked: the mark is taken away after that all the same."""
    with fake_gangd(watched, tmp_path / "log") as daemon:
        daemon.say("slow")
        with interrupted(watched, "Mark", "compare", "7", "--rounds", "2") as ending:
            assert ending.wait(10) == 1
        time.sleep(1.5)
        assert connect(watched).dominfo("7")["domain"]["marked"] is False


def test_a_caller_that_waits_for_seconds_is_told_once(
    address: str, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gangd may be loading the scheduler; an answer that comes at once needs no such word."""
    monkeypatch.setattr("gangd.control.sd_bus.PATIENCE_SECONDS", 0.3)
    told: list[float] = []
    client = connect(address, timeout=1.5, waits=lambda: told.append(time.monotonic()))
    client.status()
    assert told == []
    daemon.process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(NoDaemon):
            client.status()
    daemon.process.send_signal(signal.SIGCONT)
    assert len(told) == 1 and told[0] - begin >= 0.3


def test_silence_ends_with_the_time(address: str, daemon: FakeDaemon) -> None:
    """Silence ends at gangd's time and at the bus's; the next call gets its own answer, not the late one."""
    client = connect(address, timeout=0.3)
    daemon.process.send_signal(signal.SIGSTOP)
    with pytest.raises(NoDaemon, match="did not answer: Connection timed out"):
        client.status()
    daemon.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert "cpus" in client.topology()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"\0gangd-mute-{os.getpid()}")
        mute.listen()
        with pytest.raises(NoDaemon, match="did not answer: Connection timed out"):
            connect(f"unix:abstract=gangd-mute-{os.getpid()}", timeout=0.3).status()


def test_no_daemon_and_no_bus(address: str, tmp_path: Path) -> None:
    """An absent daemon and an absent bus are told apart, in a sentence."""
    with pytest.raises(NoDaemon, match="gangd is not running at unix:"):
        connect(address).status()
    with pytest.raises(NoDaemon, match="no D-Bus at"):
        connect(f"unix:path={tmp_path}/none").status()
    with pytest.raises(InvalidArgument):
        connect("nonsense")


def test_name_is_taken_once(address: str, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A second daemon is told that it is the second."""
    with pytest.raises(AssertionError), fake_gangd(address, tmp_path / "second.log"):
        pass
    assert "another gangd owns" in (tmp_path / "second.log").read_text()
    assert call(address, "Status").returncode == 0


def test_gangctl_over_the_bus(address: str, daemon: FakeDaemon) -> None:
    """The program itself: tables, JSON, errors, exit status; hostile names are escaped."""
    shown = gangctl(address, "list", "--all")
    assert shown.returncode == 0 and shown.stderr == ""
    assert shown.stdout.splitlines()[0].split()[:3] == ["Id", "Name", "State"]
    assert "\x1b" not in shown.stdout and "evil\\x1b[31m\\xe2\\x80\\xae" in shown.stdout
    marked = gangctl(address, "mark", "db", "--policy", "strict", "--json")
    assert json.loads(marked.stdout)["domain"]["policy"] == "strict"
    wrong = gangctl(address, "mark", "nope")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.splitlines()[0] == "error: failed to mark domain 'nope'"
    told = gangctl(address, "--json", "dominfo", "nope")
    assert (told.returncode, json.loads(told.stdout)["error"]["code"]) == (1, "NoSuchDomain")
    rates = json.loads(gangctl(address, "--json", "stats", "web", "--interval", "0.1").stdout)
    assert rates["interval_seconds"] == 10.0
    assert rates["domains"][0]["vcpus"][0]["pause_exits"] == 100.0


def test_daemon_without_a_bus_does_not_spin(
    bus: tuple[str, subprocess.Popen[str]], daemon: FakeDaemon, tmp_path: Path
) -> None:
    """When the bus dies the daemon stays up, quietly."""
    bus[1].kill()
    bus[1].wait()
    time.sleep(0.5)
    stat = Path(f"/proc/{daemon.process.pid}/stat")
    before = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
    time.sleep(1)
    after = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
    daemon.say("disconnect")  # a property changes with nobody to tell
    assert after - before < 20, "busy after the bus was gone"
    assert len((tmp_path / "gangd.log").read_text()) < 10000


def test_client_does_not_change_the_environment(address: str) -> None:
    """How sd-bus is told the address leaves no trace."""
    before = dict(os.environ)
    with pytest.raises(NoDaemon):
        connect(address).status()
    assert dict(os.environ) == before
