# SPDX-License-Identifier: Apache-2.0
"""gangctl repair under a real libvirtd: definitions lose their pins and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")
from gangd.cli.main import main  # noqa: E402
from gangd.model.pin_xml import pins  # noqa: E402

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
HOSTILE = (
    "<x:y xmlns:x='urn:x'><cputune><vcpupin vcpu='0' cpuset='1'/></cputune>"
    "<!-- <cputune> --><z xmlns='urn:z' a='&lt;&amp;&#xe9;'>東京 &lt;vcpupin/&gt;</z></x:y>"
)
Define = Callable[..., Any]
THREADS = ("vcpu", "emulator", "iothread")
Gangctl = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


@pytest.fixture
def gangctl(libvirtd: Any, capsys: pytest.CaptureFixture[str]) -> Gangctl:
    """Runs repair; the pins of one domain, as its document has them."""

    def run(dom: Any, *words: str) -> list[dict[str, Any]]:
        code = main(["--json", "-c", libvirtd.uri, "repair", *words])
        document = json.loads(capsys.readouterr().out)
        assert (code, document["failures"]) == (0, [])
        (found,) = (domain["pins"] for domain in document["domains"] if domain["uuid"] == dom.UUIDString())
        return list(found)

    return run


@pytest.fixture
def pinned(conn: Any, define: Define) -> Any:
    """A running guest with an I/O thread and all three kinds of pins, in both definitions."""
    dom = define(metadata=HOSTILE, start=False)
    text = dom.XMLDesc(INACTIVE).replace("  <os>", "  <iothreads>1</iothreads>\n  <os>", 1)
    conn.defineXML(text)
    assert "<iothreads>1<" in dom.XMLDesc(INACTIVE)
    dom.create()
    size = conn.getCPUMap()[0]
    one = tuple(cpu == 1 for cpu in range(size))
    for affect in (LIVE, CONFIG):
        dom.pinVcpuFlags(0, one, affect)
        dom.pinEmulator(one, affect)
        dom.pinIOThread(1, one, affect)
    return dom


def where(rows: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    return [(row["where"], row["thread"], row["limits"]) for row in rows]


def without_cputune(lines: list[str]) -> list[str]:
    """A definition, as libvirt indents it, whose <cputune> has three pins and nothing else."""
    first = lines.index("  <cputune>")
    assert lines[first + 4] == "  </cputune>"
    return lines[:first] + lines[first + 5 :]


def test_pins_go_and_nothing_else(pinned: Any, gangctl: Gangctl) -> None:
    """The persistent definition is what it was without pins; a live pin stays, and limits nothing."""
    size = pinned._conn.getCPUMap()[0]
    before = pinned.XMLDesc(INACTIVE).splitlines()
    rows = gangctl(pinned)
    assert where(rows) == [(w, t, True) for w in ("live", "config") for t in THREADS]
    assert gangctl(pinned, pinned.name()) == [{**row, "removed": True} for row in rows]
    assert pinned.XMLDesc(INACTIVE).splitlines() == without_cputune(before)
    assert where(gangctl(pinned)) == [("live", t, False) for t in THREADS]
    assert all(pinned.vcpus()[1][0][:2]), "the thread itself may not run anywhere"
    # libvirt has no call that removes a live pin.
    assert [pin.cpus for pin in pins(pinned.XMLDesc(0))] == [frozenset(range(size))] * 3
    assert [row["removed"] for row in gangctl(pinned, pinned.name())] == [False] * 3


def test_what_it_prints_puts_the_pins_back(pinned: Any, libvirtd: Any, gangctl: Gangctl) -> None:
    before = pinned.XMLDesc(INACTIVE)
    rows = gangctl(pinned, pinned.name())
    for row in rows:
        subprocess.run(row["put_back"], shell=True, check=True, capture_output=True)
    assert pinned.XMLDesc(INACTIVE) == before
    assert gangctl(pinned) == [{**row, "removed": False} for row in rows]


def test_a_saved_image_loses_its_pins(pinned: Any, gangctl: Gangctl) -> None:
    """Saved, repaired and started again, not even the live definition has a pin."""
    pinned.managedSave(0)
    secure = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE
    before = pinned.managedSaveGetXMLDesc(secure).splitlines()
    rows = gangctl(pinned, pinned.UUIDString())
    assert where(rows) == [(w, t, True) for w in ("config", "saved") for t in THREADS]
    assert pinned.managedSaveGetXMLDesc(secure).splitlines() == without_cputune(before)
    assert gangctl(pinned) == []
    pinned.create()
    assert not pinned.hasManagedSaveImage(0) and pins(pinned.XMLDesc(0)) == []


def test_threads_without_a_pin_go_where_vcpu_says(conn: Any, define: Define, gangctl: Gangctl) -> None:
    dom = define(start=False)
    text = dom.XMLDesc(INACTIVE)
    conn.defineXML(text.replace("<vcpu placement='static'", "<vcpu placement='static' cpuset='0'", 1))
    dom.create()
    dom.pinVcpuFlags(1, tuple(cpu == 1 for cpu in range(conn.getCPUMap()[0])), LIVE)
    assert where(gangctl(dom, dom.name())) == [("live", "vcpu", True)]
    assert [(row["cpus"], row["limits"]) for row in gangctl(dom)] == [([0], False)]
