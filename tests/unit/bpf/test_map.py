# SPDX-License-Identifier: Apache-2.0
"""gangd.bpf._core.Map on the running kernel."""

import errno
import itertools
import os
import signal
import struct
from pathlib import Path

import pytest

from gangd.bpf import F_EXIST, F_LOCK, F_NOEXIST, BpfError, Object, possible_cpus


def u32(number: int) -> bytes:
    return struct.pack("=I", number)


def u64(number: int) -> bytes:
    return struct.pack("=Q", number)


def test_attributes(obj: Object) -> None:
    m = obj.map("percpu")
    assert (m.name, m.type, m.key_size, m.value_size, m.max_entries) == ("percpu", "percpu_array", 4, 4, 1)
    assert m.fd > 2
    assert obj.map(".rodata").name == "sample.rodata"
    assert repr(m) == "<gangd.bpf.Map percpu of sample>"


def test_update_lookup_delete(obj: Object) -> None:
    m = obj.map("hash")
    assert m.lookup(u32(1)) is None
    m.update(u32(1), u64(10))
    m.update(u32(1), bytearray(u64(11)), flags=F_EXIST)
    assert m.lookup(memoryview(u32(1))) == u64(11)
    assert m.delete(u32(1)) is True
    assert m.delete(u32(1)) is False
    assert m.keys() == []
    assert m.items() == []


def test_map_errors_have_the_reason_of_the_kernel(obj: Object) -> None:
    m = obj.map("hash")
    m.update(u32(1), u64(1))
    with pytest.raises(BpfError, match="sample: map 'hash': update: File exists"):
        m.update(u32(1), u64(1), F_NOEXIST)
    with pytest.raises(BpfError, match="map 'array': delete") as caught:
        obj.map("array").delete(u32(0))
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(BpfError) as caught:
        obj.map("queue").keys()
    with pytest.raises(BpfError):
        obj.map("queue").items()


def test_wrong_lengths_are_named(obj: Object) -> None:
    m = obj.map("hash")
    with pytest.raises(ValueError, match="map 'hash': key is 4 bytes, 3 given"):
        m.lookup(b"abc")
    with pytest.raises(ValueError, match="map 'hash': value is 8 bytes, 4 given"):
        m.update(u32(1), u32(1))
    with pytest.raises(ValueError, match="key is 4 bytes"):
        m.delete(b"")


def test_a_full_map_is_e2big(sample: Path) -> None:
    with Object(sample) as obj:
        obj.set_max_entries("hash", 2)
        for wrong in (0, -1, 1 << 32):
            with pytest.raises(ValueError, match="max_entries"):
                obj.set_max_entries("hash", wrong)
        obj.load()
        m = obj.map("hash")
        assert m.max_entries == 2
        with pytest.raises(BpfError) as caught:
            for key in range(3):
                m.update(u32(key), u64(0))
        assert caught.value.errno == errno.E2BIG


def test_per_cpu_values_have_one_slot_for_each_possible_cpu(obj: Object) -> None:
    size = 8 * possible_cpus()
    value = b"".join(u32(cpu + 1) + bytes(4) for cpu in range(possible_cpus()))
    for name, entry in (("percpu", value), ("percpu_hash", bytes(range(size % 256)).ljust(size, b"x"))):
        m = obj.map(name)
        m.update(u32(0), entry)
        assert m.lookup(u32(0)) == entry
        assert m.items() == [(u32(0), entry)]
        with pytest.raises(ValueError, match=f"value is {size} bytes"):
            m.update(u32(0), entry[:-1])


def test_a_thousand_keys(obj: Object) -> None:
    m = obj.map("hash")
    wanted = {u32(key): u64(key * key) for key in range(1000)}
    for key, value in wanted.items():
        m.update(key, value)
    assert sorted(m.keys()) == sorted(wanted)
    items = m.items()
    assert len(items) == 1000
    assert dict(items) == wanted


def test_arrays_have_every_key(obj: Object) -> None:
    assert obj.map("array").keys() == [u32(key) for key in range(4)]
    assert [key for key, _ in obj.map("array").items()] == [u32(key) for key in range(4)]


def test_many_items_take_more_than_one_batch(sample: Path) -> None:
    with Object(sample) as obj:
        obj.set_max_entries("hash", 200_000)
        obj.load()
        m = obj.map("hash")
        for key in range(150_000):
            m.update(u32(key), u64(key))
        items = m.items()
        assert len(items) == len({key for key, _ in items}) == 150_000
        assert len(m.keys()) == 150_000


def test_spin_locked_values(obj: Object) -> None:
    m = obj.map("locked")
    m.update(u32(1), u32(0) + u32(7), F_LOCK if m.lookup(u32(1)) else 0)
    m.update(u32(1), u32(0) + u32(8), flags=F_LOCK)
    assert m.lookup(u32(1), flags=F_LOCK) == u32(0) + u32(8)
    assert m.items(flags=F_LOCK) == [(u32(1), u32(0) + u32(8))]


def test_walking_while_another_process_churns_ends_without_duplicates(obj: Object) -> None:
    """A child that inherited the map: in one process the GIL would keep the two apart."""
    m = obj.map("hash")
    child = os.fork()
    if not child:
        for key in itertools.count():
            m.update(u32(key % 512), u64(key))
            m.delete(u32((key + 256) % 512))
    try:
        while not m.keys():
            pass
        for _ in range(500):
            keys, items = m.keys(), m.items()
            assert len(keys) == len(set(keys)) <= m.max_entries
            assert len(items) == len(dict(items)) <= m.max_entries
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
