# SPDX-License-Identifier: Apache-2.0
"""gangctl preflight: its lines, its document, its exit status, and that neither bus nor socket is touched."""

from __future__ import annotations

import json
import socket

import pytest

from gangd import checks
from gangd.checks import Check, Verdict
from gangd.cli.main import main
from gangd.control import client as control

GOOD = Check("KVM", "KVM is loaded", "pass")
TOLD = Check("CPUs", "SMT is known", "pass", "on, 2 threads a core")
UNSEEN = Check("KVM", "VM exits can be counted", None, "cannot read /x\x1b: only root may")
WARNED = Check("libvirt", "its daemon listens", "warn", "nobody listens", "start it")
FAILED = Check("gang.ko", "the module is installed for this kernel", "fail", "it is not")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon, no connection to anybody."""

    def never(*_args: object, **_options: object) -> None:
        pytest.fail("preflight asked somebody")

    monkeypatch.setattr(control, "connect", never)
    monkeypatch.setattr(socket.socket, "connect", never)


def found(monkeypatch: pytest.MonkeyPatch, backend: str | None, *rows: Check) -> None:
    monkeypatch.setattr(checks, "of_this_host", lambda: Verdict(rows, backend))


def test_one_line_a_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Aligned; what is wrong and what to do stand behind the word; a path is a stranger's text."""
    found(monkeypatch, "module", GOOD, TOLD, UNSEEN, WARNED)
    lines = [
        "  KVM:     KVM is loaded           : PASS",
        "  CPUs:    SMT is known            : PASS (on, 2 threads a core)",
        "  KVM:     VM exits can be counted : - (cannot read /x\\x1b: only root may)",
        "  libvirt: its daemon listens      : WARN (nobody listens; start it)",
    ]
    assert main(["preflight"]) == 0
    verdict = ["", "Gangs can be scheduled on this host, by gang.ko."]
    assert capsys.readouterr().out.splitlines() == lines + verdict
    assert main(["preflight", "-q"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("backend", "rows"), [("sched_ext", (GOOD, FAILED)), (None, (GOOD, FAILED)), (None, (GOOD, UNSEEN))]
)
def test_a_host_that_cannot(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    backend: str | None,
    rows: tuple[Check, ...],
) -> None:
    """The exit status is 1, and all that there is to say is on stdout."""
    found(monkeypatch, backend, *rows)
    assert main(["preflight"]) == 1
    out, err = capsys.readouterr()
    assert err == "" and out.endswith("\nGangs cannot be scheduled on this host: see what has failed.\n")
    assert main(["preflight", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schedulable"], document["backend"]) == (False, None)


def test_the_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found(monkeypatch, "sched_ext", WARNED, UNSEEN)
    assert main(["--json", "preflight"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "schedulable": True,
        "backend": "sched_ext",
        "checks": [
            {
                "about": "libvirt",
                "check": "its daemon listens",
                "result": "warn",
                "detail": "nobody listens",
                "hint": "start it",
            },
            {
                "about": "KVM",
                "check": "VM exits can be counted",
                "result": None,
                "detail": "cannot read /x\x1b: only root may",
                "hint": None,
            },
        ],
    }


def test_this_very_host(capsys: pytest.CaptureFixture[str]) -> None:
    """On any machine preflight has an answer on every line, and its exit status is the verdict's."""
    code = main(["preflight", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == (0 if document["schedulable"] else 1)
    assert {row["about"] for row in document["checks"]} >= {"KVM", "CPUs", "sched_ext", "cgroups", "libvirt"}
