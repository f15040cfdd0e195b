# SPDX-License-Identifier: Apache-2.0
"""A pass that was told what libvirt says does not ask again; what gangd wrote since is asked."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("libvirt")

from gangd.actuate.helper_pin import HelperPin
from gangd.actuate.libvirt_pin import LibvirtPin
from gangd.actuate.recall import Recall
from gangd.errors import NoLibvirt
from gangd.model.domain import Domain, Helper, Vcpu

UUID = "11111111-2222-3333-4444-555555555555"
VM = Domain(
    UUID,
    "vm",
    id=1,
    pid=10,
    state="running",
    vcpus=(
        Vcpu(0, 11, 5, affinity=frozenset({2}), actual=frozenset({2})),
        Vcpu(1, 12, 5, affinity=frozenset({2}), actual=frozenset({3})),
    ),
    helpers=(Helper("emulator", frozenset({0, 1})), Helper("iothread/1", frozenset({1}))),
)


def never() -> Any:
    raise NoLibvirt("it was asked")


def seen(domain: Domain = VM) -> dict[str, Domain]:
    return {domain.uuid: domain}


def test_what_was_read_is_not_asked_for() -> None:
    pin, helpers = LibvirtPin(never), HelperPin(never)
    pin.begin(seen())
    helpers.begin(seen())
    assert pin.read(f"{UUID}/vcpu/0") == "2"
    assert pin.read(f"{UUID}/vcpu/7") is None
    assert helpers.read(f"{UUID}/emulator") == "0-1"
    assert helpers.read(f"{UUID}/iothread/1") == "1"


def test_a_thread_outside_its_pin_is_seen_in_it() -> None:
    conn = SimpleNamespace(getCPUMap=lambda: (4, [True] * 4, 4))
    pin = LibvirtPin(lambda: conn)
    pin.begin(seen())
    assert pin.read(f"{UUID}/vcpu/1") == "3"


@pytest.mark.parametrize(("kind", "key"), [(LibvirtPin, "vcpu/0"), (HelperPin, "emulator")])
def test_after_the_pass_it_is_asked(kind: type[LibvirtPin | HelperPin], key: str) -> None:
    actuator = kind(never)
    actuator.begin(seen())
    actuator.end()
    with pytest.raises(NoLibvirt):
        actuator.read(f"{UUID}/{key}")


def test_what_was_written_is_asked_for() -> None:
    pin = LibvirtPin(never)
    pin.begin(seen())
    with pytest.raises(NoLibvirt):
        pin.write(f"{UUID}/vcpu/0", "1")
    with pytest.raises(NoLibvirt):
        pin.read(f"{UUID}/vcpu/0")


def test_an_unknown_thread_is_asked_for() -> None:
    pin = LibvirtPin(never)
    pin.begin(seen(Domain(UUID, "vm", id=1, vcpus=(Vcpu(0, affinity=frozenset({2})),))))
    with pytest.raises(NoLibvirt):
        pin.read(f"{UUID}/vcpu/0")


def test_a_reading_that_began_before_a_write_was_over_says_nothing_of_its_guest() -> None:
    now = 0.0
    recall = Recall(lambda: now)
    with recall.writing(UUID):
        now = 101.0
    recall.begin(seen(replace(VM, since=100.0)))
    assert recall.guest(UUID) is None
    later = replace(VM, since=102.0)
    recall.begin(seen(later))
    assert recall.guest(UUID) is later


def test_a_guest_that_does_not_run_is_not_recalled() -> None:
    recall = Recall()
    recall.begin(seen(Domain(UUID, "vm")))
    assert recall.guest(UUID) is None
