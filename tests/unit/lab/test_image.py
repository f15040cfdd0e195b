# SPDX-License-Identifier: Apache-2.0
"""The VM's root image is a copy of the toolbox: nothing may change there meanwhile."""

import fcntl
from pathlib import Path

import pytest

from lab import image, shell


def test_no_package_is_installed_while_the_root_image_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def make(_tree: Path, target: Path) -> None:
        with (tmp_path / "toolbox-packages.lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(target)

    (tmp_path / "mark").write_text("the toolbox")
    monkeypatch.setattr(shell, "BUILD", tmp_path)
    monkeypatch.setattr(image, "TOOLBOX_MARK", tmp_path / "mark")
    monkeypatch.setattr(image, "ROOT_IMAGE", tmp_path / "root.ext4")
    monkeypatch.setattr(image, "make", make)
    monkeypatch.setattr(image.subprocess, "run", lambda *_words, **_options: None)
    image.root()
    assert held == [tmp_path / "root.ext4"]
