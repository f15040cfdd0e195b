# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, as root: a Linux guest's disk and network beside busy guests, which are marked as it is.

`fio` is the guest's own account of its reads (guest/latency.c), `ping` the host's of the guest's answers. The
first guest is that one; the others are flat payloads whose vCPUs are always busy.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import sys
import time
from typing import Any

from bench.driver import WORK, say
from bench.guest_pool import GuestPool
from bench.result import quantile
from bench.seeds import guests
from bench.seeds.driver import WARM_SECONDS, Bench, Document, main
from lab.guests.counters import domain_xml
from lab.guests.domains import PREFIX, Guest, paused, resume

DISK_BYTES = 8 << 20
LEAST_US = 16.384  # of the first class in which the guest counts its reads
PING_SECONDS = 0.005  # from one to the next
LOST_SECONDS = 1.0  # a ping without an answer counts as this
BUSY = "spin"


class Latency(Bench):
    """The loads fio and ping."""

    part = "latency"

    def _started(self, load: str, features: str, number: int) -> GuestPool:
        say(f"starting a guest for {load} and {number - 1} busy ones")
        guests.bridge()
        disk = WORK / "disk"
        disk.write_bytes(os.urandom(DISK_BYTES))
        payload = WORK / self._options.payload.name
        shutil.copy(self._options.payload, payload)
        texts = [guests.xml(f"{PREFIX}0", self._kind(load, features), card=True, disk=str(disk))]
        window = {"window": self._options.window}
        texts += [
            domain_xml(f"{PREFIX}{i}", BUSY, cpus=self._options.vcpus, kernel=payload, options=window)
            for i in range(1, number)
        ]
        with paused(self._connection, texts) as domains:
            found = [Guest(domain) for domain in domains]
            resume(found[:1], guests.BOOT_SECONDS)
            resume(found[1:])
        pool = GuestPool(found)
        time.sleep(WARM_SECONDS)
        return pool

    def _observe(self, pool: GuestPool, running: list[Any]) -> Document:
        """Return the quiet guest's latency in one round, in us; rate: how often its 99th percentile fits into
        a second, so that more is better."""
        before = pool.counters(running[0]).per_cpu
        answers = ping(self._options.seconds)
        after = pool.counters(running[0]).per_cpu
        counts = [late - early for early, late in zip(before, after, strict=True)]
        read = [(bound_us(number), count) for number, count in enumerate(counts)]
        histogram = read if sum(counts) else [(answer, 1) for answer in answers]
        p50, p99 = quantile(histogram, 0.5), quantile(histogram, 0.99)
        assert p50 is not None and p99 is not None
        number = sum(count for _, count in histogram)
        return {"rate": 1e6 / p99, "p50_us": p50, "p99_us": p99, "number": number}


def bound_us(number: int) -> float:
    """Return the upper end of a class of the guest's reads (guest/latency.c)."""
    octave, quarter = divmod(number, 4)
    return float(LEAST_US * 2**octave * (1 + quarter / 4))


def ping(seconds: float) -> list[float]:
    """Send echo requests to the guest for so long; return how many us each answer took."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as channel:
        channel.settimeout(LOST_SECONDS)
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            begin = time.monotonic()
            channel.sendto(echo(number), (guests.GUEST, 0))
            found.append(1e6 * (_answered(channel, number, begin) - begin))
            time.sleep(max(0.0, begin + PING_SECONDS - time.monotonic()))
    return found


def _answered(channel: socket.socket, number: int, begin: float) -> float:
    """Return when the answer came; an answer to an earlier request is not it."""
    while True:
        try:
            packet = channel.recv(2048)
        except TimeoutError:
            return begin + LOST_SECONDS
        kind, _, _, process, answered = struct.unpack("!BBHHH", packet[20:28])
        if (kind, process, answered) == (0, os.getpid() & 0xFFFF, number & 0xFFFF):
            return time.monotonic()


def echo(number: int) -> bytes:
    """Return an ICMP echo request (RFC 792) of this process and number."""
    head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, number & 0xFFFF)
    total = sum(struct.unpack(f"!{len(head) // 2}H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + head[4:]


if __name__ == "__main__":
    sys.exit(main(Latency))
