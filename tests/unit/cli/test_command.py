# SPDX-License-Identifier: Apache-2.0
"""The options that all commands share: how a domain is named, and which libvirt is meant."""

from __future__ import annotations

import argparse
import json

import pytest

from fakes import FakeService, snapshot
from gangd.cli.main import parser
from gangd.errors import InvalidArgument
from unit.cli.conftest import EVIL
from unit.cli.test_gangctl import run


def takes_a_domain() -> dict[str, argparse.ArgumentParser]:
    """The parsers of commands that do, by name."""
    (made,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    takes = (name for name, sub in made.choices.items() if any(a.dest == "domain" for a in sub._actions))
    return {name: made.choices[name] for name in takes}


@pytest.mark.parametrize("name", takes_a_domain())
def test_a_domain_in_both_spellings(name: str) -> None:
    """A domain may be an option before or after others, too, and is never both at once."""
    parse = takes_a_domain()[name].parse_args
    plain = vars(parse(["web"]))
    assert plain["domain"] == "web"
    for words in (["--domain", "web"], ["--domain=web"], ["-q", "--domain", "web"], ["--", "web"]):
        assert {**vars(parse(words)), "quiet": None} == {**plain, "quiet": None}
    for words in (["--domain", "web", "db"], ["db", "--domain", "web"]):
        with pytest.raises(InvalidArgument, match="not allowed with argument"):
            parse(words)


def test_a_domain_as_an_option(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "dominfo", "--domain", "web") == run(capsys, "dominfo", "web")
    assert run(capsys, "stats", "--domain", "web") == run(capsys, "stats", "web") != run(capsys, "stats")
    assert run(capsys, "mark", "--weight", "5", "--domain", EVIL)[1].startswith("Domain 'evil\\x1b[31m")
    assert "one of the arguments --domain DOMAIN is required" in run(capsys, "dominfo")[2]


def test_connect_names_the_libvirt_that_is_meant(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    """virsh's option: the daemon's own URI is fine wherever it stands, any other is an error."""
    assert run(capsys, "-c", "qemu:///system", "list")[0] == 0
    assert run(capsys, "list", "--connect=qemu:///system")[0] == 0
    assert run(capsys, "--connect", "", "list")[0] == 0
    code, out, err = run(capsys, "-c", "xen:///\x1b", "mark", "web")
    assert (code, out) == (1, "")
    assert err == (
        "error: failed to mark domain 'web'\n"
        "error: this gangd works for qemu:///system, not for 'xen:///\\x1b' "
        "(daemon.libvirt_uri; each host has a gangd of its own)\n"
    )
    assert service.calls == []
    service.now = snapshot(state_fields={"connected": False, "uri": "", "reason": "refused"})
    told = json.loads(run(capsys, "--json", "-c", "qemu:///system", "list")[1])["error"]
    assert (told["code"], told["message"]) == ("NoLibvirt", "gangd is not connected to libvirt (refused)")


def test_the_environments_libvirt_is_no_claim(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIBVIRT_DEFAULT_URI, which virsh's users set, is not checked; --connect is checked still."""
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "xen:///")
    assert run(capsys, "list")[0] == 0
    assert run(capsys, "-c", "qemu:///system", "list")[0] == 0
    assert run(capsys, "-c", "xen:///", "list")[0] == 1
