# SPDX-License-Identifier: Apache-2.0
"""Pins are found and cut out of a definition, and nothing else is, whatever its text looks like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.errors import GangError
from gangd.model.pin_xml import Pin, pins, unpinned, without_pins

# Metadata that looks like pins, in every way that XML has to write text.
HOSTILE = """\
  <metadata>
    <x:y xmlns:x='urn:x' a="&lt;cputune&gt;"><cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
      <!-- <cputune><vcpupin vcpu='0' cpuset='1'/></cputune> -->
      <![CDATA[</metadata><cputune><vcpupin vcpu='0' cpuset='1'/></cputune>]]>
      <?pi <cputune>?> &#233; 東京 &amp;amp;
    </x:y>
  </metadata>
"""
PINS = """\
    <vcpupin vcpu='0' cpuset='1'/>
    <vcpupin vcpu='12' cpuset='0-2,5'/>
    <emulatorpin cpuset='3'></emulatorpin>
    <iothreadpin iothread='1' cpuset='0'/>
"""
FOUND = [
    Pin("vcpu", 0, frozenset({1})),
    Pin("vcpu", 12, frozenset({0, 1, 2, 5})),
    Pin("emulator", None, frozenset({3})),
    Pin("iothread", 1, frozenset({0})),
]
SHARES = "    <shares>2048</shares>\n"
REST = "  <devices>\n    <emulator>/bin/qemu</emulator>\n  </devices>\n"


def domain(cputune: str) -> str:
    return f"<domain type='kvm' id='3'>\n  <name>東京</name>\n{HOSTILE}{cputune}{REST}</domain>\n"


def tune(inside: str) -> str:
    return f"  <cputune>\n{inside}  </cputune>\n"


@pytest.mark.parametrize(
    ("cputune", "found", "left"),
    [
        ("", [], ""),
        (tune(SHARES), [], tune(SHARES)),
        (tune(""), [], tune("")),
        (tune(PINS), FOUND, ""),
        (tune(SHARES + PINS), FOUND, tune(SHARES)),
        (tune(PINS + SHARES), FOUND, tune(SHARES)),
        (tune("    <vcpusched vcpus='0' scheduler='fifo' priority='1'/>\n" + PINS), FOUND,
         tune("    <vcpusched vcpus='0' scheduler='fifo' priority='1'/>\n")),
        ("<cputune><vcpupin cpuset='1' vcpu='0'/></cputune>", FOUND[:1], ""),
        ("<cputune><emulatorpin cpuset='3'/><shares>1</shares></cputune>", FOUND[2:3],
         "<cputune><shares>1</shares></cputune>"),
        ("  <cputune><emulatorpin cpuset='3'>\n</emulatorpin ></cputune >\n", FOUND[2:3], ""),
        ("<x:cputune xmlns:x='u'><vcpupin vcpu='0' cpuset='1'/></x:cputune>", [],
         "<x:cputune xmlns:x='u'><vcpupin vcpu='0' cpuset='1'/></x:cputune>"),
    ],
)  # fmt: skip
def test_pins_are_cut_out_and_nothing_else(cputune: str, found: list[Pin], left: str) -> None:
    text = domain(cputune)
    assert pins(text) == found
    assert without_pins(text) == domain(left)
    assert pins(without_pins(text)) == []


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_text_of_strangers_survives(text: str) -> None:
    kept = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    around = "<domain><title>{0}</title>\n{1}<description>{0}</description></domain>"
    assert without_pins(around.format(kept, tune(PINS))) == around.format(kept, "")


def test_a_pin_is_written_as_libvirt_writes_it() -> None:
    assert [pin.element() for pin in FOUND] == [
        "<vcpupin vcpu='0' cpuset='1'/>",
        "<vcpupin vcpu='12' cpuset='0-2,5'/>",
        "<emulatorpin cpuset='3'/>",
        "<iothreadpin iothread='1' cpuset='0'/>",
    ]


def test_threads_without_a_pin_run_where_vcpu_says() -> None:
    assert unpinned("<domain><vcpu placement='static' cpuset='0-1'>2</vcpu></domain>") == {0, 1}
    assert unpinned("<domain><x><vcpu cpuset='5'/></x><vcpu>2</vcpu></domain>") == frozenset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<domain>", "no element found: line 1, column 8"),
        ('<!DOCTYPE d [<!ENTITY a "aa">]><domain>&a;</domain>', "a document type is not allowed"),
        ("<domain>\ud800</domain>", "it is not Unicode"),
        ("<domain><cputune><vcpupin vcpu='-1' cpuset='1'/></cputune></domain>",
         "'-1' is not the number of a thread"),
        ("<domain><cputune><vcpupin vcpu='0' cpuset='^1'/></cputune></domain>", "'^1' is not a list of CPUs"),
    ],
)  # fmt: skip
def test_what_is_no_definition_is_refused(text: str, why: str) -> None:
    with pytest.raises(GangError) as refused:
        pins(text)
    assert refused.value.cause == f"cannot parse it: {why}"


def test_depth_costs_nothing() -> None:
    deep = "<a>" * 50_000 + "</a>" * 50_000
    assert without_pins(f"<domain>{deep}\n{tune(PINS)}</domain>") == f"<domain>{deep}\n</domain>"
