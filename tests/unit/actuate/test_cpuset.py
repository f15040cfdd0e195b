# SPDX-License-Identifier: Apache-2.0
"""Emptying a cpuset under the kernel's rules for threads and groups, and threads that a death left out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libvirt")

from gangd.actuate.cpuset import inherit, prepare

from .kernel import Died, Kernel, Steps

GROUPS = {"vcpu0": "10", "vcpu1": "11", "iothread1": "12", "emulator": "20 21 22"}
ANY = frozenset({0})


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """The group of a guest whose threads are all pinned."""
    (tmp_path / "cgroup.threads").write_text("")
    for name, tids in GROUPS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.threads").write_text(tids)
        (tmp_path / name / "cpuset.cpus").write_text("0")
    return tmp_path


def threads(guest: Path) -> dict[str, str]:
    return {name: (guest / name / "cgroup.threads").read_text() for name in GROUPS}


def cpuset(guest: Path, name: str) -> Path:
    return guest / name / "cpuset.cpus"


@pytest.mark.parametrize("name", GROUPS)
def test_an_empty_cpuset(guest: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses one with threads in it; they are back in the end."""
    Kernel().boot(monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        cpuset(guest, name).write_text("\n")
    inherit(cpuset(guest, name))
    assert cpuset(guest, name).read_text() == "\n"
    assert threads(guest) == GROUPS


@pytest.mark.parametrize("first", GROUPS)
@pytest.mark.parametrize("then", GROUPS)
def test_threads_come_home_after_any_number_of_deaths(
    guest: Path, first: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gangd dies at any step of one group, its successor at any step of the same or another one."""
    for steps in range(1, 40):
        with monkeypatch.context() as patch, pytest.raises(Died):
            Kernel(Steps(steps % 9)).boot(patch)
            while True:
                inherit(cpuset(guest, first))
        with monkeypatch.context() as patch, pytest.raises(Died):
            Kernel(Steps(steps % 7)).boot(patch)
            while True:
                prepare(cpuset(guest, then), ANY, "a test")
                inherit(cpuset(guest, then))
        with monkeypatch.context() as patch:
            Kernel().boot(patch)
            prepare(cpuset(guest, first), ANY, "a test")
        assert threads(guest) == GROUPS
        assert not (guest / "cgroup.threads").read_text().strip()


def test_a_refused_cpuset_leaves_the_threads_in_their_group(
    guest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong with the file is raised."""
    cpuset(guest, "vcpu1").unlink()
    cpuset(guest, "vcpu1").mkdir()
    Kernel().boot(monkeypatch)
    with pytest.raises(OSError):
        inherit(cpuset(guest, "vcpu1"))
    assert threads(guest) == GROUPS


def test_v1_has_no_such_files(tmp_path: Path) -> None:
    """And no cpuset that is empty."""
    (tmp_path / "vcpu0").mkdir()
    (tmp_path / "vcpu0/cpuset.cpus").write_text("0")
    prepare(tmp_path / "vcpu0/cpuset.cpus", ANY, "a test")
