# SPDX-License-Identifier: Apache-2.0
"""Running other programs, saying what takes long, and keeping parallel runs out of each other's way."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.errors import LabError
from lab.paths import BUILD


def say(sentence: str) -> None:
    """Progress goes to stderr: stdout belongs to the command in the VM."""
    print(f"lab: {sentence}", file=sys.stderr, flush=True)


def call(argv: Sequence[str | Path], purpose: str, *, cwd: Path | None = None) -> str:
    """Run a program and return what it printed; `purpose` completes the sentence "cannot ..."."""
    words = [str(word) for word in argv]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    done = subprocess.run(words, cwd=cwd, stdin=null, stdout=pipe, stderr=pipe, errors="replace", check=False)
    if done.returncode == 0:
        return done.stdout
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
    raise LabError(f"cannot {purpose}: {argv[0]} exited with status {done.returncode}\n{tail}")


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold build/lab/NAME.lock: the second process waits, then finds the work done."""
    BUILD.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(BUILD / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
