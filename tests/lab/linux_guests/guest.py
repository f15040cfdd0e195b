# SPDX-License-Identifier: Apache-2.0
"""One stock Linux guest: its domain, what it does all the time, and what its console says of that."""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from guests.counters import domain_xml

BRIDGE = "linux-guests"
NAMES = ("linux0", "linux1", "linux2", "linux3")
CPUS = 2
MEMORY_MIB = 256
DISK_BYTES = 8 << 20
# What the console counts, in its words. `wrong` is data that came back different from what was sent.
WORK = ("hackbench", "disk", "echo")
COUNTERS = ("beat", *WORK, "received", "sent", "wrong")
PANIC = "Kernel panic"

# Each worker writes its count to a file; the last loop reads them all to the console. A block that is written
# is new random data, read back past the page cache; what a neighbour echoes must be what was sent.
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec >/dev/ttyS0 2>&1 </dev/null
for module in /modules/*; do insmod $module; done
n=$(sed 's/.*guest=\\([0-9]*\\).*/\\1/' /proc/cmdline)
ip link set lo up
ip addr add 10.31.0.$((n + 1))/24 dev eth0
ip link set eth0 up
next=10.31.0.$(((n + 1) % {len(NAMES)} + 1))
other=10.31.0.$(((n + 2) % {len(NAMES)} + 1))
for name in {" ".join(WORK)} wrong; do echo 0 >/tmp/$name; done
wrong() {{ echo "wrong data: $1"; echo 1 >/tmp/wrong; }}

hackbench_rounds() {{
  n=0
  while :; do
    for kind in -P -T; do
      /usr/bin/hackbench $kind -g 1 -f 4 -l 100 >/dev/null && n=$((n + 1)) && echo $n >/tmp/hackbench
    done
  done
}}
disk_rounds() {{
  n=0
  while :; do
    at=$((n % 32 * 4))
    dd if=/dev/urandom of=/tmp/block bs=64k count=4 status=none
    dd if=/tmp/block of=/dev/vda bs=64k seek=$at count=4 conv=notrunc oflag=direct status=none || continue
    dd if=/dev/vda of=/tmp/back bs=64k skip=$at count=4 iflag=direct status=none || continue
    cmp -s /tmp/block /tmp/back || wrong "disk"
    n=$((n + 1))
    echo $n >/tmp/disk
  done
}}
echo_rounds() {{
  n=0
  dd if=/dev/urandom of=/tmp/message bs=16k count=1 status=none
  size=$(stat -c %s /tmp/message)
  while :; do
    nc -w 20 $next 7 </tmp/message >/tmp/answer
    if [ "$(stat -c %s /tmp/answer)" = $size ]; then
      cmp -s /tmp/message /tmp/answer || wrong "network"
      n=$((n + 1))
      echo $n >/tmp/echo
    else
      sleep 1
    fi
  done
}}
nc -ll -p 7 -e /bin/cat &
hackbench_rounds &
disk_rounds &
echo_rounds &
while :; do ping -q -i 0.3 -w 30 $other >/dev/null; done &
beat=0 hackbench=0 disk=0 echo=0 wrong=0
while :; do
  beat=$((beat + 1))
  for name in {" ".join(WORK)} wrong; do read -r now </tmp/$name && eval $name=$now; done
  read -r received </sys/class/net/eth0/statistics/rx_packets
  read -r sent </sys/class/net/eth0/statistics/tx_packets
  echo "beat=$beat hackbench=$hackbench disk=$disk echo=$echo received=$received sent=$sent wrong=$wrong"
  sleep 1
done
"""
_LINE = re.compile(r"^" + " ".join(rf"{name}=(\d+)" for name in COUNTERS) + r"\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Tally:
    """A guest's counts by its last whole line; complaint: of its kernel, if that has panicked."""

    counts: dict[str, int]
    complaint: str | None

    @property
    def disk_mib(self) -> float:
        """MiB written and read back."""
        return self.counts["disk"] * 0.5


def tally(log: Path) -> Tally:
    """Read a console."""
    text = ""
    with contextlib.suppress(FileNotFoundError):
        text = log.read_text(errors="replace")
    counts = dict.fromkeys(COUNTERS, 0)
    for found in _LINE.finditer(text):
        counts = dict(zip(COUNTERS, map(int, found.groups()), strict=True))
    panics = [line.strip() for line in text.splitlines() if PANIC in line]
    return Tally(counts, panics[0] if panics else None)


def xml(number: int, kernel: Path, image: Path, disk: Path, log: Path, cpuset: str | None) -> str:
    """The domain. cpuset: where its vCPUs stay from birth, None: anywhere."""
    text = domain_xml(NAMES[number], "linux", cpus=CPUS, memory_mib=MEMORY_MIB, kernel=kernel, serial_log=log)
    domain = ET.fromstring(text)
    boot, cmdline, devices = domain.find("os"), domain.find("os/cmdline"), domain.find("devices")
    vcpu = domain.find("vcpu")
    assert boot is not None and cmdline is not None and devices is not None and vcpu is not None
    # A guest that panics stays, for its registers to be read.
    cmdline.text = f"console=ttyS0 quiet oops=panic panic=0 guest={number}"
    ET.SubElement(boot, "initrd").text = str(image)
    if cpuset:
        vcpu.set("cpuset", cpuset)
    device = _added(devices, "disk", type="file", device="disk")
    _added(device, "driver", name="qemu", type="raw")
    _added(device, "source", file=str(disk))
    _added(device, "target", dev="vda", bus="virtio")
    device = _added(devices, "interface", type="bridge")
    _added(device, "source", bridge=BRIDGE)
    _added(device, "model", type="virtio")
    _added(device, "rom", enabled="no")  # no guest boots from the network
    # A CPU that resets (triple fault) leaves its registers in the domain's log.
    _command_line(domain, ["-d", "cpu_reset"])
    return ET.tostring(domain, encoding="unicode")


def _added(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, attributes)


def _command_line(domain: ET.Element, words: Sequence[str]) -> None:
    space = "http://libvirt.org/schemas/domain/qemu/1.0"
    ET.register_namespace("qemu", space)
    line = ET.SubElement(domain, f"{{{space}}}commandline")
    for word in words:
        ET.SubElement(line, f"{{{space}}}arg", value=word)
