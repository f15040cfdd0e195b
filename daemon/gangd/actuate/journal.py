# SPDX-License-Identifier: Apache-2.0
"""The settings that gangd changed and their prior values, on disk, so that any successor can undo them.

One JSON object per line, appended and flushed to disk *before* the host is
touched, those of many settings together; a later line for the same setting replaces the earlier one:

    {"actuator":"affinity","key":"UUID/PID/vcpu/1","prior":"0-3","written":null,"pending":"1"}
    {"actuator":"affinity","key":"UUID/PID/vcpu/1","prior":"0-3","written":"1","pending":null}
    {"actuator":"affinity","key":"UUID/PID/vcpu/1"}                      # undone: forget it

The daemon may die at any byte: it never acted upon a last line without its newline,
and its successor ignores that line. The file belongs to one boot (/run), as do the
settings. A line that is complete but malformed means that something else wrote here:
the journal sets the file aside for a human, keeps the entries that it could read, and
says so in `problem`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from gangd.errors import GangError

# Lines beyond twice the live entries before the file is written anew.
_SLACK = 256
_HANDED_OVER = "handed-over"


@dataclass(frozen=True)
class Entry:
    """A setting that gangd changed.

    prior: its value before gangd first wrote it. written: the last value gangd
    wrote and read back. pending: a value being written now, None when all is settled.
    """

    prior: str
    written: str | None = None
    pending: str | None = None

    def ours(self, value: str) -> bool:
        """True when gangd may have put `value` there.

        After a death in mid-write any value may be half of ours, so all are.
        """
        return self.pending is not None or value == self.written


Key = tuple[str, str]


class Journal:
    """The journal at `path`; directories are made as needed. One process writes it.

    Raises GangError when the file cannot be read, or is damaged and cannot be set aside.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._entries: dict[Key, Entry] = {}
        self._durable: dict[
            Key, Entry | None
        ] = {}  # what is on disk of those that changed since; None: nothing
        self._lines = 0
        # False: the end of the file is not known to be a whole line.
        self._sound = False
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._load()
        except OSError as error:
            raise self._failed("open", error)

    @property
    def entries(self) -> Mapping[Key, Entry]:
        """(actuator, key) -> entry, oldest change first."""
        return MappingProxyType(self._entries)

    def put(self, actuator: str, key: str, entry: Entry) -> None:
        """Remember `entry`, durably from the next flush() on."""
        self._durable.setdefault((actuator, key), self._entries.get((actuator, key)))
        self._entries[(actuator, key)] = entry

    def drop(self, actuator: str, key: str) -> None:
        """Forget a setting, durably from the next flush() on; fine when it is not there."""
        if (before := self._entries.pop((actuator, key), None)) is not None:
            self._durable.setdefault((actuator, key), before)

    def flush(self) -> None:
        """All changes since the last flush are on disk now. Raises GangError, and then they are forgotten."""
        changed, self._durable = self._durable, {}
        if not changed:
            return
        try:
            self._append([_line(*key, self._entries.get(key)) for key in changed])
        except OSError as error:
            for key, before in changed.items():
                self._restore(key, before)
            raise self._failed("write", error)

    def _restore(self, key: Key, before: Entry | None) -> None:
        if before is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = before

    def _append(self, lines: list[bytes]) -> None:
        if not self._sound or self._lines > 2 * len(self._entries) + _SLACK:
            self._rewrite()  # holds the effect of the new lines already
            return
        data = b"".join(lines)
        self._sound = False  # until the last line is known to be on disk, whole
        with self.path.open("ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(28, os.strerror(28))
            os.fsync(file.fileno())
        self._sound = True
        self._lines += len(lines)

    def _rewrite(self) -> None:
        """Replace the file by one that holds the live entries only; whole or not at all."""
        self._sound = False
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as file:
            file.write(b"".join(_line(*key, entry) for key, entry in self._entries.items()))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        _sync_directory(self.path.parent)
        self._lines = len(self._entries)
        self._sound = True

    def _load(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole, newline, torn = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        bad = sum(not self._replay(line) for line in lines)
        self._lines = len(lines)
        self._sound = bool(newline) and not torn and not bad
        if bad:
            # A second name for the file, so that there is no moment without a journal.
            aside = _unused(self.path)
            aside.hardlink_to(self.path)
            self.problem = (
                f"the journal {self.path} was damaged ({bad} of {len(lines)} lines): kept as {aside}; "
                f"what those lines held cannot be undone"
            )
            self._rewrite()

    def _replay(self, line: bytes) -> bool:
        """Apply one line; False when it makes no sense."""
        try:
            data = json.loads(line)
            key = (data["actuator"], data["key"])
            entry = Entry(data["prior"], data["written"], data["pending"]) if "prior" in data else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        texts = key if entry is None else (*key, entry.prior, entry.written or "", entry.pending or "")
        if not all(isinstance(text, str) for text in texts):
            return False
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        return True

    def _failed(self, verb: str, error: OSError) -> GangError:
        return GangError(f"cannot {verb} the journal {self.path}: {error.strerror}")


def hand_over(folder: Path) -> None:
    """The journal is for the gangd that is about to start: whoever would undo it meanwhile leaves it alone,
    once. Raises OSError."""
    (folder / _HANDED_OVER).touch()


def was_handed_over(folder: Path) -> bool:
    """True if hand_over() was called since this was asked last. Raises OSError."""
    try:
        (folder / _HANDED_OVER).unlink()
    except FileNotFoundError:
        return False
    return True


def claim(folder: Path) -> IO[str]:
    """The journal in `folder` is ours until the file is closed or its process dies: two writers would undo
    each other. Raises GangError while another gangd has it."""
    action = f"failed to use {folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a")
    except OSError as error:
        raise GangError(f"{error.strerror}", action)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise GangError("another gangd is running; stop it first (systemctl stop gangd)", action)
    return file


def _line(actuator: str, key: str, entry: Entry | None) -> bytes:
    data: dict[str, object] = {"actuator": actuator, "key": key}
    if entry is not None:
        data |= {"prior": entry.prior, "written": entry.written, "pending": entry.pending}
    # ASCII output: no byte of a value can be a newline.
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"


def _unused(path: Path) -> Path:
    """A name beside `path` for a damaged file, never one in use."""
    number = 1
    while path.with_name(f"{path.name}.damaged-{number}").exists():
        number += 1
    return path.with_name(f"{path.name}.damaged-{number}")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
