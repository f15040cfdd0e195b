# SPDX-License-Identifier: Apache-2.0
"""The picture of the last trace: kept whole, read back, and refused where it is not what gangctl keeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangd.errors import GangError
from gangd.trace.kept import MOST, NAME, NONE, Picture, keep, kept


def test_it_is_replaced(tmp_path: Path) -> None:
    """The next picture takes the place of the one before, with its time; only its owner may read it."""
    assert kept(tmp_path) == NONE == kept(tmp_path / "none")
    for drawn, recorded in (("<svg>東京</svg>", 1.5), ("<svg/>", 0.5)):
        keep(tmp_path, drawn, recorded)
        assert kept(tmp_path) == Picture(drawn.encode(), recorded)
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [NAME]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A link in the place of the picture leads no write astray."""
    (tmp_path / "other").write_text("precious")
    (tmp_path / NAME).symlink_to("other")
    keep(tmp_path, "<svg/>", 1.0)
    assert (tmp_path / "other").read_text() == "precious" and kept(tmp_path).svg == b"<svg/>"


@pytest.mark.parametrize("fault", ["write", "rename", "size"])
def test_a_failure_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """No half of a picture is seen and no file is left behind."""

    def fails(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    keep(tmp_path, "<svg/>", 1.0)
    if fault != "size":
        monkeypatch.setattr(*((os, "utime") if fault == "write" else (Path, "replace")), fails)
    with pytest.raises(GangError, match=f"cannot keep the picture of this trace in '{tmp_path}': "):
        keep(tmp_path, "x" * (MOST + 1 if fault == "size" else MOST), 2.0)
    assert kept(tmp_path) == Picture(b"<svg/>", 1.0)
    assert [file.name for file in tmp_path.iterdir()] == [NAME]


def large(file: Path) -> None:
    """Make a file of one byte more than gangctl keeps."""
    file.write_bytes(b"x" * (MOST + 1))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.symlink_to("/etc/passwd"), "it is a symbolic link"),
        (lambda file: os.mkfifo(file), "it is not a regular file"),
        (lambda file: file.mkdir(), "Is a directory"),
        (large, "it has 1,048,577 bytes, and at most 1,048,576 are allowed"),
    ],
)
def test_a_file_that_gangctl_does_not_keep_is_refused(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    """The sentence says why, and nothing waits for a writer of a pipe."""
    make(tmp_path / NAME)
    assert kept(tmp_path) == Picture(reason=f"cannot show the last trace from '{tmp_path / NAME}': {why}")
