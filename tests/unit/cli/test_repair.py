# SPDX-License-Identifier: Apache-2.0
"""gangctl repair against a libvirt that is made of texts: what it shows, removes, and says of failures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")

from fakes import guest  # noqa: E402
from gangd import config  # noqa: E402
from gangd.cli.main import main  # noqa: E402
from gangd.control import client as control  # noqa: E402

from .conftest import EVIL  # noqa: E402

VCPU = "    <vcpupin vcpu='0' cpuset='{}'/>\n"
ALL = VCPU.format(1) + "    <emulatorpin cpuset='1'/>\n    <iothreadpin iothread='2' cpuset='0,2-3'/>\n"
EVERYWHERE = VCPU.format("0-3")


def definition(inside: str, vcpu: str = "<vcpu>2</vcpu>") -> str:
    tune = f"  <cputune>\n{inside}  </cputune>\n" if inside else ""
    return f"<domain>\n  <metadata>東京 &amp; <x cputune=''/></metadata>\n  {vcpu}\n{tune}</domain>\n"


class Failing(libvirt.libvirtError):  # type: ignore[misc]
    def __init__(self, text: str = "no such luck", code: int = libvirt.VIR_ERR_INTERNAL_ERROR) -> None:
        self.text, self.code = text, code

    def get_error_message(self) -> str:
        return self.text

    def get_error_code(self) -> int:
        return self.code

    def get_error_domain(self) -> int:
        return int(libvirt.VIR_FROM_QEMU)


class FakeDomain:
    """texts: its definitions by where they are. error: what reading one raises. deaf: its live pins stay."""

    def __init__(self, name: str, **texts: str) -> None:
        self.called, self.texts = name, texts
        self.error: Exception | None = None
        self.deaf = False
        self.written: list[str] = []

    def name(self) -> str:
        return self.called

    def ID(self) -> int:  # noqa: N802
        return 7 if "live" in self.texts else -1

    def UUIDString(self) -> str:  # noqa: N802
        return guest(self.called).uuid

    def isActive(self) -> bool:  # noqa: N802
        return "live" in self.texts

    def isPersistent(self) -> bool:  # noqa: N802
        return "config" in self.texts

    def hasManagedSaveImage(self, _flags: int) -> bool:  # noqa: N802
        return "saved" in self.texts

    def XMLDesc(self, flags: int) -> str:  # noqa: N802
        if self.error:
            raise self.error
        return self.texts["config" if flags & libvirt.VIR_DOMAIN_XML_INACTIVE else "live"]

    def managedSaveGetXMLDesc(self, _flags: int) -> str:  # noqa: N802
        return self.texts["saved"]

    def managedSaveDefineXML(self, text: str, flags: int) -> None:  # noqa: N802
        assert flags == 0
        self.texts["saved"] = text

    def pinVcpuFlags(self, *call: Any) -> None:  # noqa: N802
        self._pin("vcpupin vcpu='{}'", *call)

    def pinIOThread(self, *call: Any) -> None:  # noqa: N802
        self._pin("iothreadpin iothread='{}'", *call)

    def pinEmulator(self, *call: Any) -> None:  # noqa: N802
        self._pin("emulatorpin", None, *call)

    def _pin(self, element: str, number: int | None, cpus: tuple[bool, ...], flags: int) -> None:
        """As libvirt does it: the pin stays, with other CPUs."""
        assert flags == libvirt.VIR_DOMAIN_AFFECT_LIVE and len(cpus) == 4
        if self.deaf:
            return
        start, head, rest = self.texts["live"].partition(f"<{element.format(number)} cpuset='")
        assert head, "a thread is pinned that had no pin"
        listed = ",".join(str(cpu) for cpu, on in enumerate(cpus) if on)
        self.texts["live"] = f"{start}{head}{listed}'{rest.partition(chr(39))[2]}"


class FakeConnection:
    """A host of four CPUs. refuses: what defining raises; adds: what libvirt puts into what is defined."""

    def __init__(self) -> None:
        self.domains: list[FakeDomain] = []
        self.refuses: Exception | None = None
        self.adds = ""

    def add(self, name: str, **texts: str) -> FakeDomain:
        self.domains.append(FakeDomain(name, **texts))
        return self.domains[-1]

    def getCPUMap(self) -> Any:  # noqa: N802
        return (4, [True, True, True, False], 3)

    def listAllDomains(self, _flags: int) -> list[FakeDomain]:  # noqa: N802
        return self.domains

    def lookupByName(self, name: str) -> FakeDomain:  # noqa: N802
        return self._find(lambda dom: dom.name() == name)

    def lookupByUUIDString(self, uuid: str) -> FakeDomain:  # noqa: N802
        return self._find(lambda dom: dom.UUIDString() == uuid)

    def lookupByID(self, number: int) -> FakeDomain:  # noqa: N802
        return self._find(lambda dom: dom.ID() == number)

    def _find(self, is_it: Any) -> FakeDomain:
        for dom in filter(is_it, self.domains):
            return dom
        raise Failing("no domain", libvirt.VIR_ERR_NO_DOMAIN)

    def defineXMLFlags(self, text: str, flags: int) -> None:  # noqa: N802
        assert flags == libvirt.VIR_DOMAIN_DEFINE_VALIDATE
        if self.refuses:
            raise self.refuses
        self.domains[0].written.append(text)
        self.domains[0].texts["config"] = text.replace("</domain>", f"{self.adds}</domain>")


@pytest.fixture
def conn(monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    made = FakeConnection()

    def never(*_args: object, **_options: object) -> None:
        pytest.fail("repair asked for the daemon")

    def opened(uri: str | None) -> FakeConnection:
        made.uri = uri  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(control, "connect", never)
    monkeypatch.setattr(libvirt, "open", opened)
    monkeypatch.setattr(config, "load", lambda: config.Config())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_table(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    """Every definition of every domain; nothing is changed."""
    conn.add("web", live=definition(ALL), config=definition(EVERYWHERE))
    conn.add("free", config=definition(""))
    conn.add(EVIL, saved=definition(VCPU.format(0)), live=definition(EVERYWHERE))
    before = [dict(dom.texts) for dom in conn.domains]
    code, out, err = run(capsys, "repair")
    lines = [
        " Domain                         Where    Thread         CPUs",
        "------------------------------------------------------------------------",
        " evil\\x1b[31m\\x0d\\xe2\\x80\\xae   live     vCPU 0         0-3 (no limit)",
        " evil\\x1b[31m\\x0d\\xe2\\x80\\xae   saved    vCPU 0         0",
        " web                            live     vCPU 0         1",
        " web                            live     emulator       1",
        " web                            live     I/O thread 2   0,2-3",
        " web                            config   vCPU 0         0-3 (no limit)",
    ]
    note = ["", "Nothing was changed: 'gangctl repair DOMAIN' removes all pins of a domain"]
    assert (code, out.splitlines(), err) == (0, lines + note, "")
    assert run(capsys, "repair", "-q")[1].splitlines() == lines[2:]
    assert [dom.texts for dom in conn.domains] == before


def test_a_domain_that_cannot_be_read_hides_no_other(
    conn: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    conn.add("web", config=definition(VCPU.format(1)))
    conn.add("bad\x1b", config="").error = Failing()
    conn.add("gone", live="").error = Failing("it is gone", libvirt.VIR_ERR_NO_DOMAIN)
    conn.add("odd", config="<domain>")
    code, out, err = run(capsys, "repair")
    assert code == 1 and " web " in out and "gone" not in out
    failed = "error: failed to list the pins of all domains\n"
    assert err == (
        f"{failed}error: cannot read the persistent definition of 'bad\\x1b': no such luck\n"
        f"{failed}error: cannot read the persistent definition of 'odd': cannot parse it: "
        "no element found: line 1, column 8\n"
    )
    code, out, err = run(capsys, "repair", "--json")
    document = json.loads(out)
    assert (code, err, len(document["failures"])) == (1, "", 2)
    assert [domain["name"] for domain in document["domains"]] == ["gone", "web"]


def test_nobody_has_pins(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    web = conn.add("web", live=definition(EVERYWHERE), config=definition(""))
    conn.add("free", config=definition(""))
    for words, said in ((["free"], "free"), (["web"], "web")):
        assert run(capsys, "repair", *words) == (0, f"Domain '{said}' has no pins to remove\n", "")
    web.texts["live"] = definition("")
    assert run(capsys, "repair") == (0, "No domain has pins\n", "")
    assert run(capsys, "repair", "-q") == (0, "", "")
    assert web.written == []


def test_all_pins_of_a_domain_go(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    shares = "    <shares>5</shares>\n"
    web = conn.add("web", live=definition(ALL), config=definition(ALL + shares), saved=definition(ALL))
    other = conn.add("other", config=definition(ALL))
    code, out, err = run(capsys, "repair", "web", "7", web.UUIDString())
    edit = "# virsh -c qemu:///system managedsave-edit web:"
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Domain 'web' has these pins; to put them back:",
        "    virsh -c qemu:///system vcpupin web 0 1 --live",
        "    virsh -c qemu:///system emulatorpin web 1 --live",
        "    virsh -c qemu:///system iothreadpin web 2 0,2-3 --live",
        "    virsh -c qemu:///system vcpupin web 0 1 --config",
        "    virsh -c qemu:///system emulatorpin web 1 --config",
        "    virsh -c qemu:///system iothreadpin web 2 0,2-3 --config",
        f"    {edit} <vcpupin vcpu='0' cpuset='1'/> in <cputune>",
        f"    {edit} <emulatorpin cpuset='1'/> in <cputune>",
        f"    {edit} <iothreadpin iothread='2' cpuset='0,2-3'/> in <cputune>",
        "Domain 'web': 6 pins removed, 3 live ones widened to CPUs 0-3",
    ]
    assert web.texts["config"] == definition(shares) and web.texts["saved"] == definition("")
    assert web.texts["live"] == definition(ALL.replace("'1'", "'0,1,2,3'").replace("0,2-3", "0,1,2,3"))
    assert other.texts["config"] == definition(ALL)


def test_threads_without_a_pin_get_what_vcpu_says(
    conn: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    cpuset = "<vcpu cpuset='0-1'>2</vcpu>"
    web = conn.add("web", live=definition(VCPU.format(1), cpuset))
    out = run(capsys, "repair", "web", "-q")[1]
    assert out == "virsh -c qemu:///system vcpupin web 0 1 --live\n"
    assert web.texts["live"] == definition(VCPU.format("0,1"), cpuset)


@pytest.mark.parametrize(
    ("given", "configured", "opened", "virsh"),
    [
        ([], "", None, "virsh"),
        ([], "qemu:///x", "qemu:///x", "virsh -c qemu:///x"),
        (["-c", "a;b\x1b"], "qemu:///x", "a;b\x1b", "virsh -c 'a;b\\x1b'"),
    ],
)
def test_which_libvirt_and_which_words(
    conn: FakeConnection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    configured: str,
    opened: str | None,
    virsh: str,
) -> None:
    """A name that a shell would take for something else is not in a command for it."""
    daemon = config.Daemon(libvirt_uri=configured)
    monkeypatch.setattr(config, "load", lambda: config.Config(daemon=daemon))
    conn.add("$(reboot)", config=definition(VCPU.format(1)))
    out = run(capsys, *given, "repair", "$(reboot)")[1]
    assert f"    {virsh} vcpupin {guest('$(reboot)').uuid} 0 1 --config" in out.splitlines()
    assert conn.uri == opened  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "file", "variable", "opened"),
    [
        ([], False, "qemu:///env", "qemu:///env"),
        ([], False, "", "qemu:///system"),
        ([], True, "qemu:///env", "qemu:///system"),
        (["-c", "qemu:///x"], False, "qemu:///env", "qemu:///x"),
    ],
)
def test_the_environment_counts_where_nothing_is_configured(
    conn: FakeConnection,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    file: bool,
    variable: str,
    opened: str,
) -> None:
    """After --connect, and not against a configuration file."""
    path = tmp_path / "gangd.toml"
    if file:
        path.touch()
    monkeypatch.setattr(config, "DEFAULT_PATH", path)
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", variable)
    assert main(["repair", *words]) == 0
    assert conn.uri == opened  # type: ignore[attr-defined]


def test_a_uri_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A byte of the command line that is no UTF-8 is told, escaped."""
    assert main(["repair", "-c", "test:///\udcff"]) == 1
    assert "cannot connect to libvirt: 'utf-8' codec can't encode" in capsys.readouterr().err


def test_a_wrong_name_changes_nothing(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    web = conn.add("web", config=definition(ALL))
    code, out, err = run(capsys, "repair", "web", "nope\x1b")
    assert (code, out, web.written) == (1, "", [])
    assert err == (
        "error: failed to repair domains 'web', 'nope\\x1b'\n"
        "error: Domain not found: no domain with matching name 'nope\\x1b'\n"
    )
    assert json.loads(run(capsys, "--json", "repair", "nope")[1])["error"]["code"] == "NoSuchDomain"


def test_what_fails_is_said_and_the_rest_is_done(
    conn: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    web = conn.add("web", live=definition(VCPU.format(1)), config=definition(ALL))
    conn.refuses = Failing()
    code, out, err = run(capsys, "repair", "web")
    assert code == 1 and out.endswith("Domain 'web': 0 pins removed, 1 live one widened to CPUs 0-3\n")
    assert err == (
        "error: failed to repair domain 'web'\n"
        "error: cannot remove the pins of the persistent definition of 'web': no such luck\n"
    )
    assert web.texts["config"] == definition(ALL)


def test_the_document(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    web = conn.add("web", live=definition(VCPU.format(1)), config=definition(VCPU.format(2)))
    web.deaf = True
    code, out, err = run(capsys, "--json", "repair", "web")
    why = "libvirt accepted other pins and still names the former ones"
    assert (code, err) == (1, "")
    pin = {"thread": "vcpu", "number": 0, "limits": True}
    live = {
        "where": "live",
        "cpus": [1],
        "removed": False,
        "put_back": "virsh -c qemu:///system vcpupin web 0 1 --live",
    }
    stored = {
        "where": "config",
        "cpus": [2],
        "removed": True,
        "put_back": "virsh -c qemu:///system vcpupin web 0 2 --config",
    }
    assert json.loads(out) == {
        "schema": 1,
        "domains": [{"uuid": web.UUIDString(), "name": "web", "id": 7, "pins": [pin | live, pin | stored]}],
        "failures": [f"cannot remove the pins of the live definition of 'web': {why}"],
    }


def test_what_libvirt_makes_more_of_it_is_put_back(
    conn: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    web = conn.add("web", config=definition(ALL))
    conn.adds = "<surprise/>"
    code, _, err = run(capsys, "repair", "web")
    assert code == 1 and err.endswith(": more than its pins changed; the former definition was put back\n")
    assert web.written == [definition(""), definition(ALL)]


def test_somebody_changes_it_meanwhile(conn: FakeConnection, capsys: pytest.CaptureFixture[str]) -> None:
    """Pins that were not told are not removed."""
    web = conn.add("web", config=definition(VCPU.format(1)))
    found = iter([definition(VCPU.format(1))])
    web.XMLDesc = lambda flags: next(found, definition(ALL))  # type: ignore[method-assign]
    code, _, err = run(capsys, "repair", "web")
    assert code == 1 and err.endswith(": somebody changed it meanwhile\n")
    assert web.written == []
