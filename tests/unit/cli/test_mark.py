# SPDX-License-Identifier: Apache-2.0
"""The answers of gangctl to commands that mark a domain."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes import FakeService, guest
from gangd.model.affect import Affect
from gangd.model.domain import Mode
from gangd.model.refused import Refused
from unit.cli.conftest import EVIL
from unit.cli.test_gangctl import run


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (None, "marked, but not scheduled: no kick\n"),
        (Mode.RELAXED, "marked, but not scheduled as it is to be, and relaxed now: no kick\n"),
    ],
)
def test_mark_and_set_fail_if_the_kernel_refuses(
    service: FakeService, capsys: pytest.CaptureFixture[str], mode: Mode | None, said: str
) -> None:
    """Mark and set answer with the refusal and its exit status; list and dominfo show what is in force."""
    uuid = guest("web").uuid
    service.now = replace(service.now, refused={uuid: Refused(uuid, "gang", "NotSupported", "no kick", mode)})
    for words in (("mark", "web", "--policy", "strict"), ("set", "web", "--policy", "strict")):
        assert run(capsys, *words) == (1, f"Domain 'web' {said}", "")
        assert json.loads(run(capsys, "--json", *words)[1])["domain"]["schedule_code"] == "NotSupported"
    assert run(capsys, "-q", "list")[1].split("\n")[0].split()[5] == (mode or "refused")
    assert "Because:       no kick" in run(capsys, "dominfo", "web")[1]
    assert run(capsys, "mark", "web", "--config")[0] == 0


def test_mark_and_unmark(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("mark", EVIL, "--policy", "strict", "--weight", "200")
    shown = "Domain 'evil\\x1b[31m\\x0d\\xe2\\x80\\xae' marked, policy strict, on CPUs 0\n"
    assert run(capsys, *words) == (0, shown, "")
    assert service.calls[0] == ("mark", EVIL, "strict", 200)
    said = "Domain 'big' marked, but not scheduled: more vCPUs than CPUs in any cache\n"
    assert run(capsys, "mark", "big") == (1, said, "")
    assert run(capsys, "unmark", "web") == (0, "Domain 'web' unmarked\n", "")


def test_a_policy_that_looked_at_the_guest_says_what_it_saw(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the answer of mark, as in dominfo."""
    monkeypatch.setattr("fakes.POLICIES", ("adaptive",))
    said = "Domain 'web' marked, policy adaptive: its vCPUs ran apart for 31% of the last 5 s: a gang\n"
    assert run(capsys, "mark", "web", "--policy", "adaptive") == (0, said, "")


def test_set(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    said = "Domain 'web' marked, policy strict, on CPUs 0-1\n"
    assert run(capsys, "set", "web", "--policy", "strict") == (0, said, "")
    assert run(capsys, "set", "evil\x1b[31m\r\u202e", "--weight", "9")[2].splitlines() == [
        "error: failed to change the mark of domain 'evil\\x1b[31m\\x0d\\xe2\\x80\\xae'",
        "error: domain is not marked (gangctl mark)",
    ]
    assert "nothing to change" in run(capsys, "set", "web")[2]


def test_config_live_and_current(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    """The options act as in virsh; what a running domain does not notice is said."""
    said = "Domain 'web' {}marked from its next start on\n"
    assert run(capsys, "mark", "web", "--config")[1] == said.format("")
    assert run(capsys, "set", "web", "--weight", "5", "--config")[1] == said.format("")
    assert run(capsys, "unmark", "web", "--config")[1] == said.format("un")
    assert run(capsys, "mark", "東京", "--config")[1] == "Domain '東京' marked, policy relaxed\n"
    assert run(capsys, "unmark", "web", "--config", "--live")[1] == "Domain 'web' unmarked\n"
    assert run(capsys, "mark", "web", "--current")[1].startswith("Domain 'web' marked, policy")
    asked = [call[-1] for call in service.calls if isinstance(call[-1], Affect)]
    config = Affect(config=True)
    assert asked == [config, config, config, config, Affect(True, True), Affect()]
    for verb in ("mark", "unmark", "set"):
        for other in ("live", "config"):
            err = run(capsys, verb, "web", "--current", f"--{other}")[2]
            assert err.endswith(f"error: Options --current and --{other} are mutually exclusive\n")
