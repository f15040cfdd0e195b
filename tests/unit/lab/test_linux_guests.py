# SPDX-License-Identifier: Apache-2.0
"""The rules by which `make linux-guests` takes a guest for alive, and a run for worth its line."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from linux_guests import __main__ as outside
from linux_guests.__main__ import Case
from linux_guests.guest import COUNTERS, INIT, NAMES, tally

LINE = "beat={0} hackbench=2 disk=3 echo=4 received=5 sent=6 wrong=0\r\n"


def console(folder: Path, text: str) -> Path:
    file = folder / "console"
    file.write_text(text)
    return file


def result(**changes: Any) -> dict[str, Any]:
    """A run in which all went well."""
    guests = {name: {"work": {"beat": 9}, "death": None} for name in NAMES}
    return {"state": "done", "lost": None, "guests": guests, "failures": [], **changes}


def died(name: str) -> dict[str, Any]:
    found = result()
    found["guests"][name]["death"] = {"reason": "triple fault"}
    return found


def verdict(results: list[dict[str, Any]]) -> int:
    options = Namespace(kernels="6.18", modes="gang", times=len(results), minutes=10, counter=False)
    return outside._verdict({Case("6.18", "gang", n): found for n, found in enumerate(results)}, options)


def test_the_console_counts_by_its_last_whole_line(tmp_path: Path) -> None:
    found = tally(console(tmp_path, "[ 1.0] hello\r\n" + LINE.format(7) + LINE.format(8) + "beat=9 hackb"))
    assert (found.counts["beat"], found.counts["disk"], found.complaint) == (8, 3, None)


def test_a_panic_is_seen(tmp_path: Path) -> None:
    text = LINE.format(7) + "[ 9.1] Kernel panic - not syncing: Fatal exception\r\n"
    assert tally(console(tmp_path, text)).complaint == "[ 9.1] Kernel panic - not syncing: Fatal exception"


def test_a_guest_that_has_no_console_yet_has_done_nothing(tmp_path: Path) -> None:
    assert not any(tally(tmp_path / "none").counts.values())


def test_the_guests_say_what_is_read() -> None:
    assert 'echo "' + " ".join(f"{name}=${name}" for name in COUNTERS) + '"' in INIT


def test_all_alive(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict([result()] * 3) == 0
    assert "6.18 gang: 12 of 12 alive after 10 minutes\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (died("linux2"), "7 of 8 alive after 10 minutes\n"),
        (result(lost="it hangs"), "4 of 8 alive after 10 minutes\n"),
        (result(state="at work"), "4 of 8 alive after 10 minutes\n"),
        (result(guests={}), "4 of 8 alive after 10 minutes\n"),
        (
            result(failures=["linux0 lives, but this stands still: disk"]),
            "8 of 8 alive after 10 minutes; 1 failures\n",
        ),
    ],
)
def test_one_that_is_not_well_is_a_failure(
    found: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict([result(), found]) == 1
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "status"), [(died("linux0"), 0), (result(), 1), (result(lost="panic"), 69)]
)
def test_the_counter_test_wants_a_death(found: dict[str, Any], status: int) -> None:
    options = Namespace(emulator=Path("/usr/bin/qemu-system-x86_64"), counter=True)
    assert outside._counter_verdict({Case("6.18", "unpinned", 1): found}, options) == status
