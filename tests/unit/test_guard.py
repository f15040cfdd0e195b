# SPDX-License-Identifier: Apache-2.0
"""Policies of strangers: found, asked, and kept from doing harm."""

from __future__ import annotations

import importlib
import logging
import re
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import guest, host
from gangd.errors import GangError
from gangd.guard import LIMIT_SECONDS, Guarded
from gangd.model.domain import Mark, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision, Policy
from gangd.model.state import State
from gangd.planner import load_policies, make_plan, policy_texts

ROOT = Path(__file__).resolve().parents[2]
WEB = guest("web", 1, mark=Mark("wild"))
OTHER = guest("other", 2, mark=Mark("relaxed"))


def example(language: str) -> str:
    """The code block of docs/policies.md in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs/policies.md").read_text(), re.M | re.S)
    return str(found)


def install(folder: Path, module: str, project: str) -> None:
    """Install a package as pip does: the module, and a .dist-info with its entry points."""
    about = tomllib.loads(project)["project"]
    ((group, points),) = about["entry-points"].items()
    for spec in points.values():
        (folder / f"{spec.partition(':')[0]}.py").write_text(module)
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    )
    lines = "".join(f"{name} = {spec}\n" for name, spec in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    importlib.invalidate_caches()


def project(name: str, point: str) -> str:
    """A pyproject.toml as in the documentation."""
    return f'[project]\nname = "{name}"\nversion = "1"\n[project.entry-points."gangd.policies"]\n{point}\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which Python looks for packages; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def planned(policies: dict[str, Policy]) -> tuple[list[str], list[str]]:
    """Names of the gangs and reasons of the refused, of a guest with the policy `wild` and one beside it."""
    domains = {d.uuid: d for d in (WEB, OTHER)}
    plan = make_plan(State(True, topology=host(), domains=domains), {}, policies)
    return [gang.name for gang in plan.gangs], [refused.reason for refused in plan.refused]


def test_the_documented_example_works(site: Path) -> None:
    """Installed, found by its entry point, described by its docstring, and asked."""
    install(site, example("python"), example("toml"))
    policy = load_policies()["crowded"]
    text = next(text for text in policy_texts() if text.name == "crowded")
    assert text.summary == "a gang for an hour after its vCPUs were seen waiting for CPUs, apart else"
    assert text.package == "gangd-crowded 1.0"
    calm = policy.decide(WEB, Evidence(5.0, corun_ratio=0.9, time=5.0, mode=Mode.BALANCE))
    assert (calm.mode, calm.again) == (Mode.BALANCE, 5.0)
    crowded = policy.decide(WEB, Evidence(5.0, corun_ratio=0.5, time=10.0, mode=Mode.BALANCE), calm.memory)
    assert crowded.mode is Mode.RELAXED
    still = policy.decide(WEB, Evidence(5.0, corun_ratio=1.0, time=15.0, mode=Mode.RELAXED), crowded.memory)
    assert still.mode is Mode.RELAXED
    later = policy.decide(WEB, Evidence(5.0, time=4000.0, mode=Mode.RELAXED), still.memory)
    assert later.mode is Mode.BALANCE


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("POLICY = (", "SyntaxError: '(' was never closed"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "AttributeError: module 'wild' has no attribute 'POLICY'"),
        ("POLICY = 3", "AttributeError: 'int' object has no attribute 'decide'"),
    ],
)
def test_one_that_cannot_be_loaded_refuses_its_guests(
    site: Path, caplog: pytest.LogCaptureFixture, module: str, why: str
) -> None:
    """All others work; who asks hears its name and why, and so does the log, once."""
    install(site, module, project("wild", 'wild = "wild:POLICY"'))
    policies = load_policies()
    assert any(text.name == "wild" for text in policy_texts())
    for _ in range(3):
        gangs, (reason,) = planned(policies)
        assert gangs == ["other"]
        assert reason.startswith(f"policy 'wild' cannot be loaded: {why}")
    assert len([r for r in caplog.records if "wild" in r.getMessage()]) == 1


def test_gangds_own_names_are_its_own(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another package cannot replace a policy, nor take a name that cannot be typed."""
    install(site, "POLICY = 3", project("aaa-first", 'relaxed = "wild:POLICY"\noff = "wild:POLICY"'))
    policies = load_policies()
    assert policies["relaxed"].decide(OTHER, Evidence()).mode is Mode.RELAXED
    assert "off" not in policies
    assert "'off' cannot be the name of a policy" in caplog.text


class Wild:
    """Does what it is told to."""

    name = "wild"

    def __init__(self, does: Callable[[], Any]) -> None:
        self.does = does

    def decide(self, *_: object) -> Any:
        return self.does()


class Unspeakable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> Callable[[], Any]:
    """Does nothing but that."""

    def does() -> Any:
        raise error

    return does


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (raising(ZeroDivisionError("division by zero")), "ZeroDivisionError: division by zero"),
        (raising(KeyError()), "KeyError"),
        (raising(SystemExit(1)), "SystemExit: 1"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raising(Unspeakable()), "Unspeakable"),
        (raising(ValueError("two\nlines" + "x" * 10_000)), "ValueError: two lines" + "x" * 191),
        (lambda: None, "TypeError: it answered NoneType instead of a Decision"),
        (lambda: Mode.RELAXED, "TypeError: it answered Mode instead of a Decision"),
        (lambda: Decision("relaxed", "x"), "TypeError: the mode of its decision is 'relaxed', not a Mode"),
        (lambda: Decision(Mode.RELAXED, " "), "ValueError: its decision has no reason"),
        (lambda: Decision(Mode.RELAXED, None), "ValueError: its decision has no reason"),
        (lambda: Decision(Mode.RELAXED, "x", again=0.0), "ValueError: its decision wants a reading again"),
        (lambda: Decision(Mode.RELAXED, "x", again=0.09), "ValueError: its decision wants a reading again"),
        (lambda: Decision(Mode.RELAXED, "x", again=float("nan")), "ValueError: its decision wants"),
        (lambda: Decision(Mode.RELAXED, "x", again="1"), "TypeError: its decision wants"),
    ],
)
def test_a_policy_that_fails_refuses_its_guest_alone(
    caplog: pytest.LogCaptureFixture, does: Callable[[], Any], why: str
) -> None:
    """The reason has the policy and the error, which is logged once; the guest beside it is a gang."""
    policies = {**load_policies(), "wild": Guarded("wild", lambda: Wild(does))}
    for _ in range(3):
        gangs, (reason,) = planned(policies)
        assert gangs == ["other"]
        assert reason.startswith(f"policy 'wild' failed: {why}")
        assert len(reason) < 300
    (record,) = (r for r in caplog.records if "wild" in r.getMessage())
    assert record.levelno == logging.ERROR and record.exc_info


def test_one_that_recovers_is_believed() -> None:
    """An error is of its moment."""
    answers = iter([None, Decision(Mode.RELAXED, "fine", again=0.1)])
    guarded = Guarded("wild", lambda: Wild(lambda: next(answers)))
    with pytest.raises(GangError):
        guarded.decide(WEB, Evidence())
    assert guarded.decide(WEB, Evidence()).mode is Mode.RELAXED


def forever() -> None:
    """Until it is interrupted, whatever it catches."""
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue


def busy() -> None:
    """Burn CPU time without a system call."""
    while True:
        pass


def at_rest() -> Any:
    """Return who has the alarm, once no policy has been asked for its time."""
    end = time.monotonic() + LIMIT_SECONDS + 1
    while signal.getitimer(signal.ITIMER_REAL)[0]:
        assert time.monotonic() < end
        time.sleep(0.05)
    return signal.getsignal(signal.SIGALRM)


@pytest.mark.parametrize("does", [forever, busy])
def test_one_that_blocks_is_interrupted_and_not_asked_again(
    caplog: pytest.LogCaptureFixture, does: Callable[[], Any]
) -> None:
    """The daemon lost a second, once; alarms are as they were once nobody has been asked for so long."""
    before = at_rest()
    policies = {**load_policies(), "wild": Guarded("wild", lambda: Wild(does))}
    begin = time.monotonic()
    for _ in range(5):
        gangs, (reason,) = planned(policies)
        assert gangs == ["other"]
        assert reason.startswith("policy 'wild' did not answer within 1 s: it is not asked again")
    assert LIMIT_SECONDS <= time.monotonic() - begin < LIMIT_SECONDS + 2
    assert len([r for r in caplog.records if "wild" in r.getMessage()]) == 1
    assert at_rest() is before
