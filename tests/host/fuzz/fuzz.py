# SPDX-License-Identifier: Apache-2.0
"""Feeds one reader of hostile text with inputs that coverage leads on: fuzz.py TARGET [libFuzzer's options].

    mark        a domain's metadata: a Mark, or one sentence
    config      gangd.toml: a Config, or one sentence with file and line
    journal     what a crash left: read, with what cannot be read told and kept aside
    printable   any name as it is shown: no control character is left, and it stays on its line

A reader that raises anything else ends the run with the input and a traceback.
"""

from __future__ import annotations

import sys
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gangd"]):
    from gangd.actuate.journal import Entry, Journal
    from gangd.config import Config, load
    from gangd.control.text import printable
    from gangd.errors import InvalidConfig, InvalidMark
    from gangd.model.mark import format_mark, parse_mark

FOLDER = Path(tempfile.mkdtemp(prefix="gangd-fuzz-"))


def mark(data: bytes) -> None:
    """A mark that is accepted survives being written and read again."""
    try:
        found = parse_mark(_text(data))
    except InvalidMark as error:
        assert "\n" not in error.cause
        return
    assert parse_mark(format_mark(found)) == found


def config(data: bytes) -> None:
    """A sentence begins with the file's name and has no second line."""
    file = FOLDER / "gangd.toml"
    file.write_bytes(data)
    try:
        assert isinstance(load(file), Config)
    except InvalidConfig as error:
        assert error.cause.startswith(str(file)) and "\n" not in error.cause


def journal(data: bytes) -> None:
    """A new entry is kept, whatever was read before it."""
    file = FOLDER / "journal"
    for old in FOLDER.glob("journal*"):
        old.unlink()
    file.write_bytes(data)
    successor = Journal(file)
    successor.put("pin", "key", Entry("0-3"))
    successor.flush()
    assert Journal(file).entries["pin", "key"] == Entry("0-3")


def shown(data: bytes) -> None:
    """No character that a terminal obeys."""
    text = printable(_text(data))
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "mark": mark,
    "config": config,
    "journal": journal,
    "printable": shown,
}

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()
