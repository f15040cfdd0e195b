# SPDX-License-Identifier: Apache-2.0
"""The picture of the last trace: gangctl keeps it in gangd's runtime directory, gangd shows it on its page.

Both are root, and the directory is root's alone: gangd-exporter gets the page from gangd and reads no file.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from gangd.errors import GangError

NAME = "trace.svg"
MOST = 1 << 20  # bytes


class Picture(NamedTuple):
    """svg: empty if there is none. recorded: since the epoch. reason: the sentence if it cannot be shown."""

    svg: bytes = b""
    recorded: float = 0.0
    reason: str = ""


NONE = Picture()


def keep(folder: Path, drawn: str, recorded: float) -> None:
    """Replace the picture in `folder`, whole or not at all. Raises GangError."""
    data = drawn.encode()
    try:
        if len(data) > MOST:
            raise OSError(errno.EFBIG, _too_large(len(data)))
        with ExitStack() as undo:
            # mode 0600, and a name that no other gangctl has
            with NamedTemporaryFile(prefix=f".{NAME}.", dir=folder, delete=False) as file:
                fresh = Path(file.name)
                undo.callback(fresh.unlink, missing_ok=True)
                file.write(data)
            os.utime(fresh, (recorded, recorded))
            fresh.replace(folder / NAME)
    except OSError as error:
        raise GangError(f"cannot keep the picture of this trace in '{folder}': {error.strerror}") from error


def kept(folder: Path) -> Picture:
    """The picture in `folder`; a link, a pipe and a large file are refused."""
    file = folder / NAME
    try:
        with open(file, "rb", opener=_open) as found:
            status = os.fstat(found.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if status.st_size > MOST:
                raise OSError(errno.EFBIG, _too_large(status.st_size))
            return Picture(found.read(MOST), status.st_mtime)
    except FileNotFoundError:
        return NONE
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        return Picture(reason=f"cannot show the last trace from '{file}': {why}")


def _open(path: str, flags: int) -> int:
    """Open no link, and wait for no writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _too_large(size: int) -> str:
    return f"it has {size:,d} bytes, and at most {MOST:,d} are allowed"
