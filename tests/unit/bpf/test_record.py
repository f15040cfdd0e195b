# SPDX-License-Identifier: Apache-2.0
"""Record: the ctypes base of every struct that crosses the kernel border."""

import ctypes

import pytest

from gangd.bpf import abi
from gangd.bpf.record import Record


class Sample(Record):
    __slots__ = ()
    _fields_ = (("small", ctypes.c_uint16), ("text", ctypes.c_char * 4), ("odd", ctypes.c_uint8 * 2))
    small: int
    text: bytes
    odd: ctypes.Array[ctypes.c_uint8]


def test_pack_and_unpack_round_trip() -> None:
    member = abi.GangMember(tgid=7, gang=3, vcpu=1)
    assert abi.GangMember.unpack(member.pack()) == member
    assert repr(member).startswith("GangMember(tgid=7, gang=3, vcpu=1")


@pytest.mark.parametrize("value", [-1, 1 << 16])
def test_a_number_that_does_not_fit_is_refused_not_wrapped(value: int) -> None:
    with pytest.raises(OverflowError, match=r"Sample\.small"):
        Sample(small=value)
    sample = Sample()
    with pytest.raises(OverflowError):
        sample.small = value


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(AttributeError):
        Sample(smal=1)


def test_records_of_another_type_or_content_differ() -> None:
    assert Sample(small=1) != Sample(small=2)
    assert Sample(small=1) != abi.GangMember()
    assert Sample(small=1) != 1
    assert Sample(text=b"ab").text == b"ab"


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="Sample is 8 bytes, not 7"):
        Sample.unpack(bytes(7))
    with pytest.raises(ValueError, match="per-CPU"):
        Sample.unpack_percpu(bytes(12))
    with pytest.raises(ValueError, match="per-CPU"):
        Sample.unpack_percpu(b"")


def test_percpu_values_are_eight_bytes_apart() -> None:
    class Tiny(Record):
        __slots__ = ()
        _fields_ = (("n", ctypes.c_uint32),)
        n: int

    data = bytes([1, 0, 0, 0, 9, 9, 9, 9, 2, 0, 0, 0, 9, 9, 9, 9])
    assert [tiny.n for tiny in Tiny.unpack_percpu(data)] == [1, 2]
