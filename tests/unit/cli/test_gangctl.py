# SPDX-License-Identifier: Apache-2.0
"""gangctl without a bus: what each command prints, its errors, its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fakes import FakeService, guest, local_client, snapshot
from gangd.cli.command import Command
from gangd.cli.main import commands, main
from gangd.cli.rates import rates
from gangd.control import client as control
from gangd.control import documents
from gangd.control.structs import Top, plain
from gangd.errors import GangError, NoDaemon, NoLibvirt
from gangd.model.domain import KVM, Mark
from gangd.model.plan import Plan
from gangd.model.profile import Choice
from gangd.model.snapshot import Part
from gangd.model.topology import Topology
from unit.cli.conftest import EVIL

DAEMON = Path(__file__).resolve().parents[3] / "daemon"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_list(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "--all")
    assert (code, err) == (0, "")
    assert out == (
        " Id   Name                           State      Policy    By     "
        "Schedule   CPUs   Co-run   PAUSE exits\n"
        "------------------------------------------------------------------"
        "---------------------------------------\n"
        " 3    web                            running    relaxed   mark   relaxed    0-1    80.0 %   20,001\n"
        " 5    big                            running    relaxed   mark   refused    -      80.0 %   90,036\n"
        " 7    evil\\x1b[31m\\x0d\\xe2\\x80\\xae   running    -         -      "
        "-          -      80.0 %   10,000\n"
        " -    東京                           shut off   -         -      -          -      -        -\n"
    )


def test_list_options(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    marked = json.loads(run(capsys, "--json", "list", "--marked")[1])
    assert [d["name"] for d in marked["domains"]] == ["web", "big"]
    assert len(run(capsys, "-q", "list")[1].splitlines()) == 3
    assert len(run(capsys, "list", "-q")[1].splitlines()) == 3
    inactive = json.loads(run(capsys, "--json", "list", "--inactive")[1])
    assert [d["name"] for d in inactive["domains"]] == ["東京"]
    assert run(capsys, "list", "--inactive", "--all") == run(capsys, "list", "--all")


def test_list_of_two_sources(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has a column for a guest's source if KVM tells of some; a cgroup's name is hostile text."""
    theirs = guest("user.slice/\x1b]0;x", 4418, source=KVM, cgroup="user.slice/\x1b]0;x")
    made = FakeService(snapshot(guest("web", 3), theirs))
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
    header, _, *rows = run(capsys, "list")[1].splitlines()
    assert header.split()[:3] == ["Id", "Name", "Source"]
    assert [row.split()[:3] for row in rows] == [
        ["3", "web", "libvirt"],
        ["4418", "user.slice/\\x1b]0;x", "kvm"],
    ]
    assert run(capsys, "list", "--source", "kvm", "--name")[1] == "user.slice/\\x1b]0;x\n"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--name",), "web\nbig\nevil\\x1b[31m\\x0d\\xe2\\x80\\xae\n"),
        (("--name", "--marked"), "web\nbig\n"),
        (("--uuid", "--inactive"), f"{guest('東京').uuid}\n"),
        (("--name", "--uuid", "--inactive", "-q"), f"{guest('東京').uuid} 東京\n"),
        (("--name", "--inactive", "--marked"), ""),
    ],
)
def test_list_for_scripts(
    service: FakeService, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], printed: str
) -> None:
    """gangctl prints a domain a line and nothing else, as virsh does."""
    assert run(capsys, "list", *words) == (0, printed, "")


def test_dominfo(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "dominfo", "web")[1].splitlines()
    assert out[:2] == ["Id:            3", "Name:          web"]
    assert "Because:       marked with policy relaxed" in out
    assert "Whole:         90.0 %" in out


def test_vcpuinfo(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """vcpuinfo has a letter for each CPU, offline ones too, as virsh; a list if their number is unknown."""
    web = guest("web", 3, mark=Mark())
    web = replace(web, vcpus=(replace(web.vcpus[0], affinity=frozenset({0, 1, 2})), web.vcpus[1]))
    service.now = snapshot(web, guest("off"))
    code, out, err = run(capsys, "vcpuinfo", "web")
    first, second = out.split("\n\n")
    assert (code, err) == (0, "")
    assert first == (
        "VCPU:           0\n"
        "CPU:            0\n"
        "CPU time:       50.0 s\n"
        "CPU Affinity:   yyy-\n"
        "Thread:         3000\n"
        "Run delay:      12.5 s\n"
        "Placed on:      0\n"
        "Because:        column 0 of the cache; free"
    )
    assert second.startswith("VCPU:           1\n") and "CPU Affinity:   -\n" in second
    assert "CPU Affinity:   0-2 (out of 4)\n" in run(capsys, "vcpuinfo", "web", "--pretty")[1]
    assert run(capsys, "vcpuinfo", "off")[1] == " the domain is not running\n"
    service.now = snapshot(web, topology=replace(service.now.state.topology, offline=frozenset({7})))
    assert "CPU Affinity:   yyy-----\n" in run(capsys, "vcpuinfo", "web")[1]
    service.now = snapshot(web, topology=Topology())
    assert "CPU Affinity:   0-2\n" in run(capsys, "vcpuinfo", "web")[1]


def test_topology(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "topology")[1] == (
        " package 0   node 0\n"
        "   LLC 0-3   cache 0\n"
        "     core 0   cpu 0: web/0   cpu 2: -\n"
        "     core 1   cpu 1: web/1   cpu 3: -\n"
    )
    service.now = snapshot(topology=Topology())
    assert run(capsys, "topology")[1] == " no CPU is known yet\n"


def test_plan(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    change = {"actuator": "pin", "key": "k", "now": "0-3", "wanted": "0", "reason": "why"}
    service.changes = [{**change, "text": f"the pin of {EVIL}: CPU 0-3 -> CPU 0"}]
    out = run(capsys, "plan")[1]
    assert " web      relaxed   1      1     column 1 of the cache; free\n" in out
    assert " big       more vCPUs than CPUs in any cache\n" in out
    assert " the pin of evil\\x1b[31m\\x0d\\xe2\\x80\\xae: CPU 0-3 -> CPU 0   why\n" in out
    service.now, service.changes = replace(service.now, plan=Plan()), []
    assert run(capsys, "plan")[1] == " no gang is wanted, nothing to change\n"


def test_policies(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "policy-list")[1]
    assert " relaxed   2         does as relaxed does\n" in out
    out = run(capsys, "policy-show", "strict")[1]
    assert out.startswith("Policy:    strict\n")
    assert out.endswith("\n\nstrict: does as strict does.\n\nMore.\n")
    assert run(capsys, "policy-show", EVIL)[2].endswith("(installed: relaxed, strict)\n")


def test_profiles(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """The built-in ones; no table of selectors where there is none."""
    assert run(capsys, "profile-list")[1] == (
        " Profile   Policy     Weight   Domains   From\n"
        "---------------------------------------------------\n"
        " default   adaptive   -        0         built in\n"
        " dense     adaptive   -        0         built in\n"
        " latency   relaxed    400      0         built in\n"
    )


def test_a_selected_guest(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """The list has the selector's line, dominfo its place; unmark says that it goes on."""
    web = service.resolve("web")
    choice = Choice("strict", 300, "db", f"/etc/{EVIL}.toml:14")
    service.now = replace(service.now, plan=replace(service.now.plan, choices={web.uuid: choice}))
    assert "   running   db       line 14   " in run(capsys, "list")[1]
    out = run(capsys, "dominfo", "web")[1]
    assert "Policy:        strict\nProfile:       db\n" in out
    assert "Chosen by:     /etc/evil\\x1b[31m" in out
    shown = {"domain": {"name": "web", "chosen": {"policy": "strict", "source": "f:14"}}}
    (unmark,) = (command for command in commands() if command.name == "unmark")
    now = Namespace(config=False, live=False)
    assert unmark.show(shown, now).startswith("Domain 'web' unmarked; still chosen by f:14")


def test_stats(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "stats", "web")[1]
    row = " web      80.0 %   15.0 s    10,000   90.0 %   95.0 %   55.6 us   50.0 %   10.0 %     12.5 s\n"
    assert row in out
    assert " web      1      30,001   10,001   2,500   12.5 s      10,001\n" in out
    service.now = replace(service.now, stats={})
    assert " web      0      -       -       -     -           -\n" in run(capsys, "stats", "web")[1]


def test_stats_over_an_interval(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "stats", "web", "--interval", "5")
    assert code == 0 and "PAUSE/s" in out
    assert " web      0      300.0     100.0     25.0    125.0 ms      100.0\n" in out


def test_stats_over_an_interval_without_libvirt(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counters of the guests that gangd knew are read all the same."""
    refresh = service.refresh

    async def away() -> None:
        await refresh()
        raise NoLibvirt("libvirtd is away")

    monkeypatch.setattr(service, "refresh", away)
    assert run(capsys, "stats", "web", "--interval", "5")[0] == 0


def test_rates_know_what_they_do_not_know() -> None:
    """A new guest, a counter that fell and a stopped daemon are unknown, not zero or negative."""
    service = FakeService(snapshot(guest("web", 3)))
    before = plain(documents.stats(service.now))
    with pytest.raises(GangError, match="longer interval"):
        rates(before, before)
    after = plain(documents.stats(replace(service.now, read_at=502.0)))
    before["domains"][0]["vcpus"][0]["pause_exits"] = 10**9
    before["domains"][0]["vcpus"][1]["tid"] = 1
    grown = rates(before, after)
    assert plain(msgspec.convert(grown, Top)) == grown
    first, second = grown["domains"][0]["vcpus"]
    assert (first["pause_exits"], first["switches"], second["switches"]) == (None, 0.0, None)
    assert rates({"time_seconds": 0, "domains": []}, after)["domains"][0]["corun_ratio"] is None


def test_status(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "status")[1].splitlines()
    assert out[0] == "Version:   0.1.0 (pid 4242, up 00:01:40)"
    assert out[2] == "Backend:   sched_ext: active (loaded, full switch)"
    backend = Part("sched_ext", False, False, "this kernel has no sched_ext")
    service.now = snapshot(backend=backend, state_fields={"connected": False, "reason": "refused"})
    service.now = replace(service.now, failures=("cannot pin\x1b",))
    out = run(capsys, "status")[1].splitlines()
    assert out[2] == "Backend:   sched_ext: not usable (this kernel has no sched_ext)"
    assert out[3].startswith("           Debian's 6.16 to 7.3")
    assert "Libvirt:   not connected (refused)" in out
    assert out[-1] == "Failure:   cannot pin\\x1b"


def test_undo(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """undo takes one domain, or all, and --resume; what could not be put back is an error."""
    assert run(capsys, "undo", "web") == (0, "Domain 'web' undone, 2 settings put back\n", "")
    assert run(capsys, "-q", "list", "--marked")[1].split()[5] == "undone"
    assert run(capsys, "undo", "--resume", "web")[1] == "Domain 'web' resumed\n"
    assert run(capsys, "undo", "--all")[1] == "2 domains undone, 4 settings put back\n"
    assert run(capsys, "undo", "--all", "--resume")[1] == "2 domains resumed\n"
    for words in (("undo",), ("undo", "web", "--all"), ("undo", "--resume")):
        assert run(capsys, *words)[2].splitlines()[-1].startswith("error: specify either a domain or --all")
    service.undo_failures = ("vCPU 1 of 'web\x1b' was pinned by hand to 3: left alone",)
    assert run(capsys, "undo", "web") == (
        1,
        "",
        "error: failed to undo domain 'web'\n"
        "error: 2 settings put back, but: vCPU 1 of 'web\\x1b' was pinned by hand to 3: left alone\n",
    )


def test_smt(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "smt", "off") == (0, "SMT is off, CPUs 2-3 are offline\n", "")
    assert run(capsys, "smt", "show") == run(capsys, "smt")
    assert run(capsys, "smt")[1] == (
        "Control:   off\n"
        "Active:    no\n"
        "Undo to:   on\n"
        "Offline:   2-3\n"
        "\n"
        " Core   CPUs   SMT\n"
        "--------------------\n"
        " 0      0      off\n"
        " 1      1      off\n"
    )
    assert run(capsys, "smt", "on")[1] == "SMT is on\n"
    assert run(capsys, "smt", "forceoff")[0] == 1
    service.fail = GangError("this kernel cannot switch SMT while it runs")
    assert run(capsys, "smt", "off")[2].splitlines() == [
        "error: failed to switch SMT",
        "error: this kernel cannot switch SMT while it runs",
    ]


def test_errors_are_two_lines(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "mark", "no\x1bpe") == (
        1,
        "",
        "error: failed to mark domain 'no\\x1bpe'\n"
        "error: Domain not found: no domain with matching name 'no\\x1bpe'\n",
    )


def test_errors_as_json(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, "dominfo", "nope", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)["error"] == {
        "code": "NoSuchDomain",
        "action": "failed to show domain 'nope'",
        "message": "Domain not found: no domain with matching name 'nope'",
    }

    def absent(bus: str | None = None, **others: object) -> control.Client:
        raise NoDaemon("gangd is not running")

    monkeypatch.setattr(control, "connect", absent)
    told = json.loads(run(capsys, "--json", "status")[1])["error"]
    assert (told["code"], told["action"]) == ("NoDaemon", "failed to show the status")


@pytest.mark.parametrize(
    "words",
    [("bogus",), ("mark",), ("mark", "web", "--weight", "0"), ("mark", "web", "--weight", "x\x1b"),
     ("stats", "--interval", "nan"), ("stats", "--interval", "0"), ("--nope",), ("li",), ("help", "bogus")],
)  # fmt: skip
def test_usage_errors(
    service: FakeService, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: failed to parse the command\nerror: ") and len(err.splitlines()) == 2
    assert "\x1b" not in err
    told = json.loads(run(capsys, "--json", *words)[1])["error"]
    assert told["code"] == "InvalidArgument"


def test_help_and_version(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-v") == (0, "gangctl 0.1.0\n", "")
    code, out, _ = run(capsys, "help")
    assert code == 0 and all(f"\n    {c.name} " in out for c in commands())
    assert run(capsys, "help", "mark")[:2] == run(capsys, "mark", "-h")[:2]
    assert run(capsys, "help", "help")[:2] == run(capsys, "help", "-h")[:2]
    code, out, err = run(capsys, "help", "policy")
    assert (code, err) == (0, "") and out.startswith(
        " Policies (help keyword 'policy'):\n"
        "    policy-list                    list the installed policies\n"
        "    policy-show                    show what a policy does\n"
        "    profile-list                   list the profiles"
    )


def test_every_command_has_a_document(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    needs = {verb: ["web"] for verb in ("mark", "unmark", "undo", "dominfo", "vcpuinfo")}
    needs |= {"set": ["web", "--weight", "5"], "policy-show": ["strict"]}
    for command in commands():
        if not isinstance(command, Command):
            continue
        run(capsys, "mark", "web")  # the command before may have taken it away
        code, out, _ = run(capsys, "--json", command.name, *needs.get(command.name, []))
        assert code == 0 and out.isascii() and json.loads(out)["schema"] == 1


def test_help_needs_no_bus_library() -> None:
    """--help is fast because nothing heavy is imported for it."""
    code = "import sys, gangd.cli.main as m; m.main(['-v']); print({'sdbus', 'asyncio'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=DAEMON, capture_output=True, text=True, check=True
    )
    assert done.stdout == "gangctl 0.1.0\nset()\n"


def test_a_poor_terminal_gets_escapes(tmp_path: Path) -> None:
    """Output that cannot be encoded is escaped, not lost."""
    code = (
        "from gangd.cli.main import main; from gangd.control import client; from fakes import *;"
        "s = FakeService(snapshot(guest('東京', 1)));"
        "client.connect = lambda bus=None, timeout=0, **others: local_client(s); main(['list', '-q'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=DAEMON,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(DAEMON.parent / "tests")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\u6771\\u4eac" in done.stdout


@pytest.mark.parametrize(
    ("line", "said", "status"),
    [
        ("gangctl help domain | true; :", "", 0),
        ("gangctl help domain >&-", "", 0),
        ("gangctl help domain <&- >&- 2>&-", "", 0),
        ("gangctl bogus 2>&-", "", 1),
        ("echo help domain | gangctl >&-", "", 0),
        (
            "gangctl top <&-",
            "failed to watch the domains: this is not a terminal (--batch prints plain text)",
            1,
        ),
        ("gangctl help domain >/dev/full", "cannot write the output: No space left on device", 1),
    ],
)
def test_output_that_nobody_reads(line: str, said: str, status: int) -> None:
    """A reader that has seen enough and a closed stream are no errors, a full disk is one; what is meant for
    a closed stream goes to no other."""
    code = "from gangd.cli.main import main; import sys; sys.exit(main())"
    shell = f"gangctl() {{ {sys.executable} -c '{code}' \"$@\"; }}; {line}"
    done = subprocess.run(["sh", "-c", shell], cwd=DAEMON, capture_output=True, text=True, check=False)
    told = done.stderr.strip().replace("error: ", "").replace("\n", ": ")
    assert (done.stdout, told, done.returncode) == ("", said, status)
