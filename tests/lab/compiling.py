# SPDX-License-Identifier: Apache-2.0
"""Runs what compiles for minutes (make, ninja): with progress, and with its own words when it fails."""

import os
import re
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError
from lab.shell import say

PROGRESS_SECONDS = 5.0
COMPLAINT_LINES = 25
# nice: a build in the background must not disturb what is measured in front of it.
QUIETLY = ("setpriv", "--pdeathsig", "TERM", "--", "nice", "-n", "19")

# make of the kernel: "  CC [M]  drivers/..."; ninja: "[12/1500] Compiling ..."
_STEP = re.compile(r"\s{2}([A-Z][A-Z0-9_]*(?: \[M\])?\s+\S+)$|\[\d+/\d+\] (\S+ .*)$")
_ERROR = re.compile(r"^\S+:\d+:.*\berror\b|\*\*\* |^ld: |: undefined reference", re.IGNORECASE)


class Progress:
    """A build's output: steps are counted and told now and then, all other lines are kept for a complaint."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps = 0
        self._last = "starting"
        self._begin = self._said = time.monotonic()
        self._words: deque[str] = deque(maxlen=400)

    def line(self, text: str) -> None:
        """Count or keep one line of the output."""
        if step := _STEP.match(text):
            self._steps += 1
            self._last = " ".join((step[1] or step[2]).split())[:60]
        elif text.strip():
            self._words.append(text.rstrip())

    def tell(self) -> None:
        """Say where the build stands, unless that was said within PROGRESS_SECONDS."""
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            say(f"{self._name}: {self._steps} steps in {now - self._begin:.0f} s, now {self._last}")

    def complaint(self) -> str:
        """Return the kept lines from the first error on; all of them when none is an error."""
        lines = list(self._words)
        first = next((number for number, text in enumerate(lines) if _ERROR.search(text)), None)
        # gcc names the function one line before the error
        shown = lines[-COMPLAINT_LINES:] if first is None else lines[max(first - 1, 0) :][:COMPLAINT_LINES]
        return "\n".join(shown)


def run(tree: Path, argv: Sequence[str]) -> None:
    """Run a build in `tree` at low priority, with progress; raises LabError with the compiler's words."""
    pipe = subprocess.PIPE
    progress = Progress(tree.name)
    with (
        subprocess.Popen(
            [*QUIETLY, *argv], cwd=tree, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT
        ) as build,
        selectors.DefaultSelector() as selector,
    ):
        assert build.stdout is not None
        selector.register(build.stdout, selectors.EVENT_READ)
        rest = b""
        # Waiting ends by itself: linking takes a minute in which nothing is said.
        while data := _next(selector, build.stdout.fileno()):
            *lines, rest = (rest + data[0]).split(b"\n")
            for text in lines:
                progress.line(text.decode(errors="replace"))
            progress.tell()
    if build.returncode != 0:
        failed = f"{argv[0]} exited with status {build.returncode}"
        raise LabError(f"cannot compile {tree.name}: {failed}\n{progress.complaint()}")


def _next(selector: selectors.BaseSelector, descriptor: int) -> tuple[bytes] | None:
    """Return the output that came within PROGRESS_SECONDS, which may be empty; None at the end."""
    if not selector.select(PROGRESS_SECONDS):
        return (b"",)
    data = os.read(descriptor, 65536)
    return (data,) if data else None
