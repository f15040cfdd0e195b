# SPDX-License-Identifier: Apache-2.0
"""The domains of the tile's guests; web has a card on a bridge of the host (vhost-net)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from bench.seeds import guests
from bench.seeds.guests import Kind
from bench.seeds.latency import BRIDGE
from bench.tile.parties import Party
from lab.guests.counters import domain_xml


def linux(name: str, party: Party, kind: Kind) -> str:
    """A Linux guest of this party."""
    found = ET.fromstring(guests.xml(name, kind))
    devices = found.find("devices")
    assert devices is not None
    if party.load == "web":
        card = ET.SubElement(devices, "interface", type="bridge")
        ET.SubElement(card, "source", bridge=BRIDGE)
        ET.SubElement(card, "model", type="virtio")
        ET.SubElement(card, "rom", enabled="no")  # no guest boots from the network
    return ET.tostring(found, encoding="unicode")


def flat(name: str, party: Party, cpus: int, payload: Path, window: int) -> str:
    """A guest of this party that runs the flat payload."""
    return domain_xml(name, party.load, cpus=party.vcpus(cpus), kernel=payload, options={"window": window})
