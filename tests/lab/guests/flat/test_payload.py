# SPDX-License-Identifier: Apache-2.0
"""The payload under plain TCG: every load comes up, is readable from outside and advances.

No libvirt and no KVM here; what the loads are for is measured elsewhere in the lab.
"""

from __future__ import annotations

import itertools
import json
import shutil
import struct
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.guests import counters
from lab.guests.counters import Counters, NotReadyError

HERE = Path(__file__).parent
START_SECONDS = 40.0
MULTI_CPU_LOADS = {"ipi", "sleepwake", "duty"}
CASES = [
    (load, cpus)
    for load, cpus in itertools.product(counters.LOADS, (1, 2, 3, 4))
    if cpus > 1 or load not in MULTI_CPU_LOADS
]

needs_qemu = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("qemu-system-x86_64", "gcc", "make")),
    reason="needs qemu-system-x86_64, gcc and make",
)


class Guest:
    """A running QEMU, spoken to over QMP on its standard input and output."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._dump = scratch / "counters.bin"
        self._log = scratch / "serial.log"
        self._receive()  # the greeting
        self.command("qmp_capabilities")

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "QEMU ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def command(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        while True:
            message = self._receive()
            assert "error" not in message, message
            if "return" in message:
                return message["return"]

    def wait_event(self, name: str) -> dict[str, Any]:
        """The data of the next event of this name."""
        while (message := self._receive()).get("event") != name:
            pass
        data: dict[str, Any] = message["data"]
        return data

    def serial(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def read(self) -> Counters:
        self.command("pmemsave", val=counters.ADDRESS, size=counters.SIZE, filename=str(self._dump))
        return Counters.parse(self._dump.read_bytes())

    def wait_ready(self) -> Counters:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.read()
            except NotReadyError:
                assert time.monotonic() < deadline, f"no counters; serial: {self.serial()!r}"
                time.sleep(0.05)

    def wait_advanced(self, since: Counters) -> Counters:
        """The next reading in which the whole load has made progress."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            now = self.read()
            if now.iterations > since.iterations:
                return now
            assert time.monotonic() < deadline, f"stuck at {now}; serial: {self.serial()!r}"
            time.sleep(0.05)

    def wait_serial(self, text: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while text not in self.serial():
            assert time.monotonic() < deadline, f"no {text!r} in {self.serial()!r}"
            time.sleep(0.05)
        return self.serial()


@contextmanager
def booted(
    payload: Path,
    scratch: Path,
    append: str,
    *,
    cpus: int | str = 2,
    model: str = "max",
    memory: int = 32,
    held: bool = False,
) -> Iterator[Guest]:
    """A guest that lives as long as the block; QEMU is stopped by its own process handle.

    held: its CPUs wait for "cont", so that nothing it does is missed.
    """
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", model]
    command += ["-smp", str(cpus), "-m", str(memory), "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-serial", f"file:{scratch / 'serial.log'}", "-qmp", "stdio"]
    command += ["-kernel", str(payload), "-append", append, *(["-S"] if held else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Guest(process, scratch)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("payload")
    subprocess.run(["make", "-s", "-C", str(HERE), f"OUT={out}"], check=True)
    return out / "loads.elf"


@needs_qemu
@pytest.mark.lab
@pytest.mark.parametrize(("load", "cpus"), CASES)
def test_load_advances(payload: Path, tmp_path: Path, load: str, cpus: int) -> None:
    with booted(payload, tmp_path, counters.command_line(load, cpus), cpus=cpus) as guest:
        first = guest.wait_ready()
        assert (first.load, first.cpus_online) == (load, cpus)
        second = guest.wait_advanced(first)
        third = guest.wait_advanced(second)
        assert all(after >= before for before, after in zip(first.per_cpu, third.per_cpu, strict=True))
        assert guest.serial() == f"gangload {load} cpus={cpus} ready\n"


@needs_qemu
@pytest.mark.lab
@pytest.mark.parametrize("load", ["barrier", "spinlock", "spin", "ipi", "sleepwake"])
def test_every_cpu_takes_part(payload: Path, tmp_path: Path, load: str) -> None:
    with booted(payload, tmp_path, counters.command_line(load, 4), cpus=4) as guest:
        now = guest.wait_ready()
        deadline = time.monotonic() + START_SECONDS
        while not all(now.per_cpu):
            assert time.monotonic() < deadline, now
            time.sleep(0.05)
            now = guest.read()


@needs_qemu
@pytest.mark.lab
@pytest.mark.parametrize("load", counters.LOADS)
def test_without_x2apic(payload: Path, tmp_path: Path, load: str) -> None:
    append = counters.command_line(load, 2)
    with booted(payload, tmp_path, append, model="max,-x2apic") as guest:
        guest.wait_advanced(guest.wait_ready())


@needs_qemu
@pytest.mark.lab
def test_halt_leaves_only_the_first_cpu(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "halt cpus=4", cpus=4) as guest:
        now = guest.wait_advanced(guest.wait_ready())
        assert now.per_cpu[0] > 0
        assert now.per_cpu[1:] == (0, 0, 0)


@needs_qemu
@pytest.mark.lab
def test_a_cpu_that_is_plugged_in_takes_part(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "spin cpus=1 grow=1", cpus="1,maxcpus=2") as guest:
        now = guest.wait_advanced(guest.wait_ready())
        assert now.cpus_online == 1
        free = [cpu for cpu in guest.command("query-hotpluggable-cpus") if "qom-path" not in cpu]
        guest.command("device_add", driver=free[0]["type"], id="late", **free[0]["props"])
        deadline = time.monotonic() + START_SECONDS
        while now.cpus_online < 2 or not now.per_cpu[1]:
            assert time.monotonic() < deadline, f"{now}; serial: {guest.serial()!r}"
            time.sleep(0.05)
            now = guest.read()


@needs_qemu
@pytest.mark.lab
def test_a_guest_resets_itself(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "spin cpus=2 reboot=100000", held=True) as guest:
        guest.command("cont")  # and nothing else is asked: QEMU is gone with the guest
        assert guest.wait_event("SHUTDOWN")["reason"] == "guest-reset"  # which -no-reboot makes of it
        assert guest.serial() == "gangload spin cpus=2 ready\n"


@needs_qemu
@pytest.mark.lab
def test_duty_alternates(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "duty cpus=2 on=100 off=100") as guest:
        guest.wait_ready()
        phases: list[Counters] = []
        while len(phases) < 5:
            reading = guest.read()
            if reading.phase in (counters.PHASE_SPINNING, counters.PHASE_HALTED) and (
                not phases or phases[-1].phase != reading.phase
            ):
                phases.append(reading)
            time.sleep(0.005)
        assert phases[-1].per_cpu[1] > phases[0].per_cpu[1]


@needs_qemu
@pytest.mark.lab
def test_duty_halted_cpu_does_no_work(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "duty cpus=2 on=50 off=60000") as guest:
        reading = guest.wait_ready()
        deadline = time.monotonic() + START_SECONDS
        while reading.phase != counters.PHASE_HALTED:
            assert time.monotonic() < deadline, reading
            time.sleep(0.02)
            reading = guest.read()
        later = guest.wait_advanced(guest.read())
        assert later.per_cpu[1] == reading.per_cpu[1]
        assert later.per_cpu[0] > reading.per_cpu[0]


@needs_qemu
@pytest.mark.lab
def test_surplus_cpus_stay_out(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "barrier cpus=2", cpus=4) as guest:
        now = guest.wait_advanced(guest.wait_ready())
        assert now.cpus_online == 2


@needs_qemu
@pytest.mark.lab
def test_64_cpus(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "halt cpus=64", cpus=64, memory=64) as guest:
        assert guest.wait_advanced(guest.wait_ready()).cpus_online == 64


@needs_qemu
@pytest.mark.lab
@pytest.mark.parametrize(
    ("append", "message"),
    [
        ("dance cpus=2", "unknown load 'dance', known: " + " ".join(counters.LOADS)),
        ("", "unknown load '', known: " + " ".join(counters.LOADS)),
        ("barrier", "barrier needs cpus=, a number from 1 to 64"),
        ("barrier cpus=65", "bad option 'cpus=65'"),
        ("barrier cpus=2x", "bad option 'cpus=2x'"),
        ("barrier cpus=4294967298", "bad option 'cpus=4294967298'"),
        ("barrier cpus=2 speed=1", "bad option 'speed=1'"),
        ("ipi cpus=1", "ipi needs at least cpus=2"),
        ("spin cpus=3", "spin did not get the CPUs of cpus=, online: 2"),
    ],
)
def test_refusal_is_one_clear_line(payload: Path, tmp_path: Path, append: str, message: str) -> None:
    with booted(payload, tmp_path, append) as guest:
        assert guest.wait_serial("\n") == f"gangload: {message}\n"
        with pytest.raises(NotReadyError):
            guest.read()


@needs_qemu
@pytest.mark.lab
def test_exception_is_reported_not_fatal(payload: Path, tmp_path: Path) -> None:
    with booted(payload, tmp_path, "spin cpus=2") as guest:
        guest.wait_ready()
        guest.wait_serial("ready\n")
        guest.command("inject-nmi")
        guest.wait_serial("gangload: exception 2 eip=0x001")
        assert guest.command("query-status")["status"] == "running"


def test_counters_must_match_in_size_magic_and_version() -> None:
    good = struct.pack("<8s4IQ64Q", b"GANGLOAD", 1, 2, 1, 0, 1 << 40, *range(64))
    assert Counters.parse(good) == Counters(1, 2, 1, 0, 1 << 40, (0, 1))
    assert Counters.parse(good).load == "barrier"
    with pytest.raises(ValueError, match="544 bytes"):
        Counters.parse(good[:-1])
    with pytest.raises(NotReadyError):
        Counters.parse(bytes(counters.SIZE))
    with pytest.raises(ValueError, match="version 9"):
        Counters.parse(good[:8] + b"\x09" + good[9:])
    with pytest.raises(ValueError, match="65 vCPUs"):
        Counters.parse(good[:12] + b"\x41" + good[13:])


def test_layout_header_agrees() -> None:
    words = (HERE / "layout.h").read_text().split()
    expected = {
        "GANGLOAD_ADDRESS": f"{counters.ADDRESS:#x}",
        "GANGLOAD_VERSION": str(counters.VERSION),
        "GANGLOAD_MAX_CPUS": str(counters.MAX_CPUS),
    }
    for name, value in expected.items():
        assert words[words.index(name) + 1] == value
    for load, number in counters.LOADS.items():
        at = words.index(f"LOAD_{load.upper()}")
        assert words[at : at + 3] == [f"LOAD_{load.upper()}", "=", f"{number},"]


def test_domain_name_is_escaped() -> None:
    name = """</name><os>&"'"""
    domain = ET.fromstring(counters.domain_xml(name, "barrier", kernel="/k"))
    assert domain.findtext("name") == name
    assert len(domain.findall("os")) == 1


@pytest.mark.parametrize("virt_type", ["kvm", "qemu"])
def test_domain_has_what_was_asked(virt_type: str) -> None:
    text = counters.domain_xml(
        "g0", "duty", cpus=3, kernel="/k/loads.elf", type=virt_type, serial_log="/log", options={"on": 20}
    )
    domain = ET.fromstring(text)
    assert domain.get("type") == virt_type
    assert domain.findtext("os/cmdline") == "duty cpus=3 on=20"
    assert domain.findtext("vcpu") == "3"
    assert (domain.find("cpu") is not None) == (virt_type == "kvm")
    assert [source.get("path") for source in domain.iterfind("devices/serial/source")] == ["/log"]


def test_kernel_path_with_a_space_is_refused() -> None:
    with pytest.raises(ValueError, match="space"):
        counters.domain_xml("g0", "spin", kernel="/a b/loads.elf")


@pytest.mark.skipif(not shutil.which("virt-xml-validate"), reason="needs libvirt's schemas")
@pytest.mark.parametrize("virt_type", ["kvm", "qemu"])
def test_domain_follows_libvirts_schema(tmp_path: Path, virt_type: str) -> None:
    path = tmp_path / "domain.xml"
    path.write_text(counters.domain_xml("a<b", "ipi", kernel="/k", type=virt_type, serial_log="/log"))
    subprocess.run(["virt-xml-validate", str(path), "domain"], check=True)
