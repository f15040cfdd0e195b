# SPDX-License-Identifier: Apache-2.0
"""gangd.bpf._core on the running kernel: objects, links, errors."""

import errno
import gc
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gangd import bpf
from gangd.bpf import BpfError, Object


def u32(number: int) -> bytes:
    return struct.pack("=I", number)


def counter(obj: Object) -> int:
    value = obj.map("array").lookup(u32(0))
    assert value is not None
    return int.from_bytes(value, sys.byteorder)


def switches_seen(obj: Object) -> bool:
    before = counter(obj)
    time.sleep(0.05)
    return counter(obj) > before


def test_lists_programs_and_maps(sample: Path) -> None:
    with Object(str(sample), name="mine") as obj:
        assert obj.programs() == ["sum", "knobs", "minus", "on_switch"]
        assert {"array", "hash", "percpu", "mine.rodata"} <= set(obj.maps())
        assert obj.name == "mine"
        assert repr(obj) == "<gangd.bpf.Object mine, open>"
    with Object(os.fsencode(sample)) as obj:
        assert obj.name == "sample"


def test_syscall_program_reads_its_context_and_returns(obj: Object) -> None:
    context = struct.pack("=II", 5, 10)
    assert obj.run("sum", context) == 13
    assert context == struct.pack("=II", 5, 10), "the kernel's copy-back reached our bytes"
    assert obj.map("hash").lookup(u32(5)) == struct.pack("=Q", 13)


def test_negative_return_of_a_program_is_no_error(obj: Object) -> None:
    assert obj.run("minus") == -22


def test_context_the_kernel_refuses(obj: Object) -> None:
    with pytest.raises(BpfError, match="sample: run program 'sum'") as caught:
        obj.run("sum", b"1234")
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(ValueError, match="65535"):
        obj.run("sum", bytes(1 << 16))


def test_set_const_by_name(sample: Path) -> None:
    with Object(sample) as obj:
        obj.set_const("knob", 30)
        obj.set_const("flag_knob", True)
        obj.set_const("signed_knob", -5)
        obj.set_const("wide_knob", 2**64 - 1)
        obj.load()
        assert obj.run("sum", struct.pack("=II", 0, 1)) == 32
        assert obj.run("knobs") == -5


def test_rodata_by_offset(sample: Path) -> None:
    with Object(sample) as obj:
        offset, size = obj.rodata_var("list_knob")
        assert size == 16
        data = bytearray(obj.rodata())
        data[offset + 12 : offset + 16] = u32(1000)
        obj.set_rodata(data)
        with pytest.raises(ValueError, match="rodata is"):
            obj.set_rodata(b"short")
        obj.load()
        assert obj.run("sum", struct.pack("=II", 0, 0)) == 1003


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("knob", -1),
        ("knob", 1 << 32),
        ("signed_knob", 1 << 15),
        ("signed_knob", -(1 << 15) - 1),
        ("flag_knob", 256),
    ],
)
def test_a_const_that_does_not_fit_is_refused(sample: Path, name: str, value: int) -> None:
    with Object(sample) as obj, pytest.raises(OverflowError):
        obj.set_const(name, value)


def test_a_const_that_is_no_integer_is_refused(sample: Path) -> None:
    with Object(sample) as obj:
        with pytest.raises(TypeError, match="list_knob"):
            obj.set_const("list_knob", 1)
        with pytest.raises(TypeError):
            obj.set_const("knob", "3")  # type: ignore[arg-type]
        with pytest.raises(BpfError, match=r"sample: variable 'nope' in \.rodata"):
            obj.set_const("nope", 1)


def test_attached_program_runs_until_its_link_is_destroyed(obj: Object) -> None:
    with obj.attach("on_switch") as link:
        assert link.attached
        assert switches_seen(obj)
    assert not link.attached
    assert not switches_seen(obj)
    link.destroy()


def test_dropping_the_link_detaches(obj: Object) -> None:
    link = obj.attach("on_switch")
    assert switches_seen(obj)
    del link
    assert not switches_seen(obj)


def test_closing_the_object_destroys_its_links(sample: Path) -> None:
    obj = Object(sample)
    obj.load()
    links = [obj.attach("on_switch") for _ in range(3)]
    obj.close()
    assert not any(link.attached for link in links)
    with pytest.raises(ValueError, match="destroyed"), links[0]:
        pass


def test_a_link_keeps_its_object_alive(sample: Path) -> None:
    obj = Object(sample)
    obj.load()
    link, array = obj.attach("on_switch"), obj.map("array")
    del obj
    gc.collect()
    time.sleep(0.05)
    assert array.lookup(u32(0)) != bytes(8)
    link.destroy()


def test_struct_ops_are_registered_until_the_object_closes(struct_ops: Path) -> None:
    def registered() -> bool:
        return "gangd_quiet" in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()

    with Object(struct_ops) as obj:
        obj.load()
        assert not registered()
        with obj.attach_struct_ops("quiet"):
            assert registered()
            with pytest.raises(BpfError, match="quiet: attach struct_ops 'quiet': File exists") as caught:
                obj.attach_struct_ops("quiet")
            assert caught.value.errno == errno.EEXIST
        assert not registered()


def test_members_of_struct_ops_are_set_before_loading(struct_ops: Path) -> None:
    """A flag that the kernel shows, a function it cannot do without, and what there is not."""
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    with Object(struct_ops) as obj:
        obj.set_struct_ops("quiet", "flags", 1)  # TCP_CONG_NON_RESTRICTED
        with pytest.raises(BpfError, match="quiet: member 'nope' of 'quiet'"):
            obj.set_struct_ops("quiet", "nope", 1)
        with pytest.raises(BpfError, match="map 'nope'"):
            obj.set_struct_ops("nope", "flags", 1)
        obj.load()
        with pytest.raises(ValueError, match="loaded already"):
            obj.set_struct_ops("quiet", "flags", 0)
        with obj.attach_struct_ops("quiet"):
            assert "gangd_quiet" in allowed.read_text()
    with Object(struct_ops) as obj:
        obj.set_struct_ops("quiet", "undo_cwnd", 0)
        obj.load()
        with pytest.raises(BpfError, match="Invalid argument"):
            obj.attach_struct_ops("quiet")


def test_a_program_without_a_hook_does_not_attach(obj: Object) -> None:
    with pytest.raises(BpfError, match="sample: attach program 'sum'") as caught:
        obj.attach("sum")
    assert caught.value.errno == errno.EOPNOTSUPP
    with pytest.raises(BpfError, match="attach struct_ops 'array'"):
        obj.attach_struct_ops("array")


def test_verifier_log_comes_with_the_error(rejected: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Object(rejected) as obj:
        with pytest.raises(BpfError, match="rejected: load: ") as caught:
            obj.load()
        assert caught.value.errno == errno.EACCES
        assert "invalid mem access" in caught.value.log
        assert "prog 'wild'" in caught.value.log
        with pytest.raises(ValueError, match="open it again"):
            obj.load()
        assert obj.programs() == ["wild", "fine"]
    assert capfd.readouterr() == ("", "")


def test_autoload_off_leaves_a_program_out(rejected: Path) -> None:
    with Object(rejected) as obj:
        obj.set_autoload("wild", False)
        obj.load()
        obj.attach("fine").destroy()
        with pytest.raises(BpfError, match="wild"):
            obj.attach("wild")


def test_logs_of_two_threads_do_not_mix(sample: Path, rejected: Path) -> None:
    logs: dict[str, list[str]] = {"wild": [], "nothing": []}

    def fail(kind: str, path: Path) -> None:
        for _ in range(20):
            try:
                Object(path).load()
            except BpfError as error:
                logs[kind].append(error.log)

    missing = Path("/nonexistent/nothing.bpf.o")
    work = [("wild", rejected), ("nothing", missing)]
    threads = [threading.Thread(target=fail, args=args) for args in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(logs["wild"]) == len(logs["nothing"]) == 20
    assert all("invalid mem access" in log and "nothing" not in log for log in logs["wild"])
    assert all("nothing.bpf.o" in log and "wild" not in log for log in logs["nothing"])


def test_errors_name_the_object_and_the_thing(obj: Object) -> None:
    for call, text in (
        (lambda: obj.map("nope"), "sample: map 'nope'"),
        (lambda: obj.run("nope"), "sample: program 'nope'"),
        (lambda: obj.attach("nope"), "sample: program 'nope'"),
    ):
        with pytest.raises(BpfError, match=text) as caught:
            call()
        assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value, OSError)
    assert BpfError(1, "made by hand").log == ""


def test_files_that_are_no_object(tmp_path: Path) -> None:
    bad = tmp_path / "bad.bpf.o"
    bad.write_bytes(b"not an ELF file")
    with pytest.raises(BpfError, match=r"bad\.bpf\.o: open") as caught:
        Object(bad)
    assert caught.value.log
    with pytest.raises(BpfError) as caught:
        Object(tmp_path / "missing.bpf.o")
    assert caught.value.errno == errno.ENOENT


def test_use_in_the_wrong_order(sample: Path) -> None:
    obj = Object(sample)
    array = obj.map("array")
    for early in (lambda: obj.run("sum"), lambda: obj.attach("on_switch"), array.keys, lambda: array.fd):
        with pytest.raises(ValueError, match="sample is not loaded"):
            early()
    obj.load()
    for late in (obj.load, lambda: obj.set_const("knob", 1), lambda: obj.set_max_entries("hash", 2)):
        with pytest.raises(ValueError, match="loaded already"):
            late()
    obj.close()
    obj.close()
    after = (obj.programs, obj.maps, obj.rodata, obj.load, array.keys, array.items, lambda: array.name)
    for call in (*after, obj.__enter__, lambda: array.lookup(u32(0)), lambda: obj.map("array")):
        with pytest.raises(ValueError, match="sample is closed"):
            call()
    assert repr(array) == "<gangd.bpf.Map of sample, closed>"


def test_handles_come_from_objects_only() -> None:
    for cls in (bpf.Map, bpf.Link):
        with pytest.raises(TypeError):
            cls()


def test_close_ends_the_work_of_other_threads(sample: Path) -> None:
    """Threads run and attach while another closes: each call works or is refused in words."""
    for _ in range(20):
        obj = Object(sample)
        obj.load()
        surprises: list[BaseException] = []

        def work(obj: Object = obj, surprises: list[BaseException] = surprises) -> None:
            try:
                while True:
                    obj.run("sum", struct.pack("=II", 1, 1))
                    obj.attach("on_switch").destroy()
            except ValueError as refused:
                assert str(refused) == "sample is closed"
            except BaseException as error:
                surprises.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        obj.close()
        for thread in threads:
            thread.join(timeout=10)
        assert not any(thread.is_alive() for thread in threads)
        assert surprises == []


LEAK = """
import os, sys
from gangd.bpf import BpfError, Object
def facts():
    pages = int(open("/proc/self/statm").read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")
def round(good, bad):
    with Object(good) as obj:
        obj.set_const("knob", 1); obj.load(); m = obj.map("hash"); m.update(bytes(4), bytes(8))
        m.keys(); m.items(); m.lookup(bytes(4)); obj.run("minus"); link = obj.attach("on_switch")
    for path in (bad, "/nonexistent"):
        try: Object(path).load()
        except BpfError: pass
for _ in range(100): round(*sys.argv[1:])
fds, rss = facts()
for _ in range(1000): round(*sys.argv[1:])
after = facts()
print(after[0] - fds, after[1] - rss)
"""


def test_a_thousand_rounds_leak_neither_memory_nor_descriptors(sample: Path, rejected: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(bpf.__file__).parents[2])}
    command = [sys.executable, "-c", LEAK, str(sample), str(rejected)]
    out = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    descriptors, grown = map(int, out.split())
    assert descriptors == 0
    assert grown < 1 << 20, f"{grown} bytes in 1000 rounds"
