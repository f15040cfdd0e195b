# SPDX-License-Identifier: Apache-2.0
"""Writes cpio archives in the "newc" form, the one kernels unpack an initramfs from."""

import stat
from pathlib import PurePosixPath


class Archive:
    """An archive in memory. Parent directories are added as needed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._directories: set[PurePosixPath] = {PurePosixPath(".")}
        self._inode = 0

    def file(self, path: str, content: bytes, mode: int = 0o644, owner: int = 0) -> None:
        """Add a regular file."""
        self._add(PurePosixPath(path), stat.S_IFREG | mode, content, owner)

    def symlink(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(PurePosixPath(path), stat.S_IFLNK | 0o777, target.encode())

    def directory(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        """Add an empty directory."""
        self._directories.add(PurePosixPath(path))
        self._add(PurePosixPath(path), stat.S_IFDIR | mode, b"", owner)

    def finish(self) -> bytes:
        """The archive's bytes, trailer included."""
        return b"".join([*self._parts, self._entry("TRAILER!!!", 0, b"")])

    def _add(self, path: PurePosixPath, mode: int, content: bytes, owner: int = 0) -> None:
        self._parents(path)
        self._parts.append(self._entry(str(path), mode, content, owner))

    def _parents(self, path: PurePosixPath) -> None:
        for parent in reversed(path.parents):
            if parent not in self._directories:
                self._directories.add(parent)
                self._parts.append(self._entry(str(parent), stat.S_IFDIR | 0o755, b""))

    def _entry(self, name: str, mode: int, content: bytes, owner: int = 0) -> bytes:
        self._inode += 1
        raw_name = name.encode() + b"\0"
        # ino, mode, uid, gid, nlink, mtime, size, dev (2), rdev (2), name size, checksum
        fields = (self._inode, mode, owner, owner, 1, 0, len(content), 0, 0, 0, 0, len(raw_name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        return _padded(header + raw_name) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
