# SPDX-License-Identifier: Apache-2.0
"""Unpacking returns the packed bytes: of modules, of the kernel in a vmlinuz, of a VM's share."""

import gzip
import lzma
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import bzimage, modules, session
from lab.errors import LabError

Pack = Callable[[bytes], bytes]
KERNEL = b"\x7fELF" + bytes(range(256)) * 40
SIZE = struct.pack("<I", len(KERNEL))


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-cq"], input=data, check=True, capture_output=True).stdout


def vmlinuz(payload: bytes) -> bytes:
    """Return a sector of setup code, 64 bytes of unpacker, the payload, and what comes behind it."""
    image = bytearray(2 * 512 + 64)
    image[bzimage.SETUP_SECTORS] = 1
    struct.pack_into("<II", image, bzimage.PAYLOAD, 64, len(payload))
    return bytes(image) + payload + b"behind"


@pytest.mark.parametrize("pack", [lzma.compress, zstd, gzip.compress, bytes])
def test_a_module_is_unpacked_whatever_its_name(tmp_path: Path, pack: Pack) -> None:
    (tmp_path / "ext4.ko").write_bytes(pack(KERNEL))
    assert modules.contents(tmp_path / "ext4.ko") == KERNEL


@pytest.mark.parametrize(("pack", "size"), [(lzma.compress, SIZE), (zstd, SIZE), (gzip.compress, b"")])
def test_the_kernel_is_unpacked_without_the_size_behind_it(pack: Pack, size: bytes) -> None:
    assert bzimage.unpacked(vmlinuz(pack(KERNEL) + size)) == KERNEL


def test_a_way_that_is_not_known_is_an_error() -> None:
    with pytest.raises(LabError, match="begins with 02214c180000"):
        bzimage.unpacked(vmlinuz(bytes.fromhex("02214c180000") + bytes(100)))


@pytest.mark.parametrize("left", [0, 100, 600, 30_000, -3_000])
def test_of_a_cut_archive_each_file_is_whole(tmp_path: Path, left: int) -> None:
    """A VM that is ended while it sends its share leaves the one before."""
    there, share = tmp_path / "there", tmp_path / "share"
    there.mkdir()
    share.mkdir()
    archives = []
    for text in ("one" * 20_000, "two" * 30_000):
        (there / "result.json").write_text(text)
        tar = ["tar", "-C", there, "--sort=name", "--blocking-factor=1", "-cf", "-", "."]
        archives.append(subprocess.run(tar, capture_output=True, check=True).stdout)
    one = session._Session.__new__(session._Session)
    one._machine = SimpleNamespace(share=share)  # type: ignore[assignment]
    one._results = bytearray(archives[0] + archives[1][:left])
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        one._unpack(ours)
    assert (share / "result.json").read_text() == "one" * 20_000
