# SPDX-License-Identifier: Apache-2.0
"""SMT is switched, journaled and put back, on a tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangd.actuate.executor import Executor
from gangd.actuate.journal import Entry, Journal
from gangd.actuate.limits import V1_CPUSET
from gangd.actuate.smt import KEY, SmtControl
from gangd.errors import GangError, InvalidArgument, VerifyFailed
from gangd.model.plan import Plan
from gangd.model.smt import Smt
from unit.actuate.smt_tree import CPUS, tree


def word(root: Path) -> str:
    return (root / CPUS / "smt/control").read_text().strip()


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    tree(tmp_path)
    return Executor([SmtControl(tmp_path)], Journal(tmp_path / "journal"))


def test_state_describes_the_smt_of_the_host(tmp_path: Path) -> None:
    smt = SmtControl(tree(tmp_path))
    assert smt.state("off") == Smt("on", True, ((0, 2), (1, 3)), frozenset(), "off")
    tree(tmp_path, "off", "0")
    (tmp_path / CPUS / "online").write_text("0-1\n")
    assert smt.state(None) == Smt("off", False, ((0,), (1,)), frozenset({2, 3}), None)


def test_unknown_is_none(tmp_path: Path) -> None:
    """A kernel without the files, and a tree without CPUs."""
    assert SmtControl(tree(tmp_path, None)).state(None).control is None
    assert SmtControl(tmp_path).state(None).active is None
    with pytest.raises(GangError) as caught:
        SmtControl(tmp_path / "nowhere").state(None)
    assert caught.value.action == "failed to read the host's CPUs"


@pytest.mark.parametrize(
    ("control", "wanted", "sentence"),
    [
        ("notsupported", "off", "the CPUs of this host have no SMT"),
        ("notsupported", "on", "the CPUs of this host have no SMT"),
        ("notimplemented", "off", "this kernel cannot switch SMT while it runs"),
        ("forceoff", "on", "forced off until the next boot"),
        (None, "on", "this kernel has no .*/smt/control"),
    ],
)
def test_where_it_cannot_be_switched(tmp_path: Path, control: str | None, wanted: str, sentence: str) -> None:
    """A sentence for each of the kernel's words, before anything is written."""
    with pytest.raises(GangError, match=sentence):
        SmtControl(tree(tmp_path, control)).needed(wanted)


def test_cpusets_of_v1_would_lose_the_cpus(tmp_path: Path) -> None:
    """cpuset_hotplug_workfn() takes offline CPUs from each group's own set, and gives none back."""
    root = tree(tmp_path, "on")
    (root / V1_CPUSET).parent.mkdir(parents=True)
    (root / V1_CPUSET).write_text("0-3")
    with pytest.raises(GangError, match="take these CPUs from guests for good"):
        SmtControl(root).needed("off")


def test_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert not SmtControl(tree(tmp_path, "on")).needed("on")
    assert not SmtControl(tree(tmp_path, "forceoff", "0")).needed("off")
    assert SmtControl(tree(tmp_path, "4")).needed("off")
    for wrong in ("forceoff", "", "on\n", "ON"):
        with pytest.raises(InvalidArgument):
            SmtControl(tmp_path).needed(wrong)


def test_it_is_put_back(tmp_path: Path, executor: Executor) -> None:
    """By an undo of everything, also by a successor; not by a plan, nor by the undo of a domain."""
    executor.set("smt", KEY, "off")
    assert word(tmp_path) == "off"
    assert executor.journal.entries["smt", KEY] == Entry("on", "off")
    assert executor.reconcile(Plan()).undone == 0
    assert executor.changes(Plan()) == []
    assert executor.undo("11111111-2222-3333-4444-555555555555").undone == 0
    assert word(tmp_path) == "off"
    successor = Executor([SmtControl(tmp_path)], Journal(tmp_path / "journal"))
    assert (successor.undo().undone, word(tmp_path)) == (1, "on")
    assert not successor.journal.entries


def test_switched_back_by_the_operator(tmp_path: Path, executor: Executor) -> None:
    """Then nothing is left to undo."""
    executor.set("smt", KEY, "off")
    executor.set("smt", KEY, "on")
    assert word(tmp_path) == "on"
    assert not executor.journal.entries


def test_undo_leaves_smt_that_an_operator_switched(tmp_path: Path, executor: Executor) -> None:
    """A second request of an operator is obeyed, and a later undo restores the operator's value."""
    executor.set("smt", KEY, "off")
    tree(tmp_path, "2")
    assert executor.undo().failures == ("SMT was switched to '2' by hand: left alone",)
    executor.set("smt", KEY, "off")
    tree(tmp_path, "2")
    executor.set("smt", KEY, "on")
    assert executor.journal.entries["smt", KEY] == Entry("2", "on")
    assert (executor.undo().failures, word(tmp_path)) == ((), "2")


class Stubborn(SmtControl):
    """A kernel that takes a word and does something else."""

    def write(self, key: str, value: str) -> None:
        super().write(key, "on")


def test_switching_smt_reports_its_failure(tmp_path: Path) -> None:
    """The word reads back different, or the file cannot be written."""
    tree(tmp_path)
    executor = Executor([Stubborn(tmp_path)], Journal(tmp_path / "journal"))
    with pytest.raises(VerifyFailed, match="SMT of this host reads back on after off was written"):
        executor.set("smt", KEY, "off")
    assert not executor.journal.entries
    (tmp_path / CPUS / "smt/control").unlink()
    (tmp_path / CPUS / "smt/control").mkdir()
    with pytest.raises(GangError) as caught:
        SmtControl(tmp_path).write(KEY, "off")
    assert caught.value.lines() == ["failed to switch SMT off", "Is a directory"]
