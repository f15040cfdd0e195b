# SPDX-License-Identifier: Apache-2.0
"""Kernels and their modules are packed in one of several ways; their first bytes say which."""

import gzip
import lzma
import subprocess
from collections.abc import Callable

GZIP = bytes.fromhex("1f8b")


def unpacked(data: bytes) -> bytes:
    """Return `data` unpacked, or `data` itself if it is not packed in a way that is known here."""
    for begin, way in _WAYS.items():
        if data.startswith(begin):
            return way(data)
    return data


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-dcq"], input=data, check=True, capture_output=True).stdout


_WAYS: dict[bytes, Callable[[bytes], bytes]] = {
    bytes.fromhex("28b52ffd"): _zstd,
    bytes.fromhex("fd377a585a00"): lzma.decompress,
    GZIP: gzip.decompress,
}
