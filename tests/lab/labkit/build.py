# SPDX-License-Identifier: Apache-2.0
"""Compiles a kernel from one of Debian's linux-source packages: the rows of kernels.toml with a `config`.

It leaves what an unpacked linux-image package would hold, and beside it `headers`, which modules are
built against. This takes many minutes, so the source tree stays until all is done, and an interrupted
build goes on where it was.
"""

import hashlib
import os
import re
import selectors
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path

from labkit import archive, packages
from labkit.errors import LabError
from labkit.paths import KERNELS, LAB
from labkit.shell import call, say

# What only this needs.
PACKAGES = ("bc", "bison", "flex", "libdw1t64", "libelf-dev")
# From the row's own suite: a pahole before 1.32 drops the tags of kfuncs, and no BPF scheduler loads then.
PAHOLE = ("pahole", "libdwarves1", "libbpf1")
PROGRESS_SECONDS = 5.0
COMPLAINT_LINES = 25
# nice: a build in the background must not disturb what is measured in front of it.
MAKE = ("setpriv", "--pdeathsig", "TERM", "--", "nice", "-n", "19", "make")

_STEP = re.compile(r"\s{2}([A-Z][A-Z0-9_]*(?: \[M\])?)\s+(\S+)$")
_ERROR = re.compile(r"^\S+:\d+:.*\berror\b|\*\*\* |^ld: |: undefined reference", re.IGNORECASE)


def mark(config: str, patterns: list[str]) -> str:
    """What decides whether a prepared row still is what kernels.toml asks for.

    Without the package's version: the archive moves on, a row that was built stays what it is.
    """
    text = "\n".join([*patterns, (LAB / config).read_text()])
    return hashlib.sha256(text.encode()).hexdigest()


def kernel(name: str, suite: str, config: str, package: Path, target: Path) -> None:
    """Build `package` with the options of `config`; `target` gets boot/, lib/modules/ and headers/."""
    begin = time.monotonic()
    packages.need(PACKAGES, "kernels are compiled with them")
    pahole = f"PAHOLE={_pahole(suite)}"
    tree = _tree(name, package)
    configure(tree, LAB / config, pahole)
    say(f"compiling {tree.name} for {name} at low priority: half an hour of CPU time")
    _compile(tree, pahole, "bzImage", "modules")
    _install(tree, pahole, target)
    say(f"built {name} in {(time.monotonic() - begin) / 60:.0f} minutes")


def forget(name: str) -> None:
    """Remove the tree a row was built in."""
    shutil.rmtree(_home(name), ignore_errors=True)


def configure(tree: Path, fragment: Path, pahole: str) -> None:
    """Nothing but the fragment's options and what they need; every one of them must have been accepted."""
    words = ["make", "-s", pahole, f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"]
    call(words, f"configure {tree.name} with {fragment.name}", cwd=tree)
    if lost := refused(fragment.read_text(), (tree / ".config").read_text()):
        raise LabError(f"cannot build {tree.name}: it does not accept {', '.join(lost)} of {fragment.name}")


def refused(fragment: str, config: str) -> list[str]:
    """Options of a fragment that a configuration does not have as asked for."""
    asked = [line.strip() for line in fragment.splitlines() if line.startswith("CONFIG_")]
    given = set(config.splitlines())
    return [line for line in asked if line not in given]


class Progress:
    """What make prints: steps are counted and told now and then, everything else is kept for a complaint."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps = 0
        self._last = "starting"
        self._begin = self._said = time.monotonic()
        self._words: deque[str] = deque(maxlen=400)

    def line(self, text: str) -> None:
        """One line of make's output."""
        if step := _STEP.match(text):
            self._steps += 1
            self._last = f"{step[1]} {step[2]}"
        elif text.strip():
            self._words.append(text.rstrip())

    def tell(self) -> None:
        """Say where it stands, unless that was said a moment ago."""
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            say(f"{self._name}: {self._steps} steps in {now - self._begin:.0f} s, now {self._last}")

    def complaint(self) -> str:
        """The compiler's words from the first error on; all of the end when there is no error in it."""
        lines = list(self._words)
        first = next((number for number, text in enumerate(lines) if _ERROR.search(text)), None)
        # gcc names the function one line before the error
        shown = lines[-COMPLAINT_LINES:] if first is None else lines[max(first - 1, 0) :][:COMPLAINT_LINES]
        return "\n".join(shown)


def _compile(tree: Path, *words: str) -> None:
    """Run make, with progress; raises LabError with the compiler's words."""
    argv = [*MAKE, f"-j{len(os.sched_getaffinity(0))}", *words]
    pipe = subprocess.PIPE
    progress = Progress(tree.name)
    with (
        subprocess.Popen(
            argv, cwd=tree, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT
        ) as make,
        selectors.DefaultSelector() as selector,
    ):
        assert make.stdout is not None
        selector.register(make.stdout, selectors.EVENT_READ)
        rest = b""
        # Waiting ends by itself: linking takes a minute in which make says nothing.
        while data := _next(selector, make.stdout.fileno()):
            *lines, rest = (rest + data[0]).split(b"\n")
            for text in lines:
                progress.line(text.decode(errors="replace"))
            progress.tell()
    if make.returncode != 0:
        raise LabError(
            f"cannot compile {tree.name}: make exited with status {make.returncode}\n{progress.complaint()}"
        )


def _next(selector: selectors.BaseSelector, descriptor: int) -> tuple[bytes] | None:
    """What came within PROGRESS_SECONDS, nothing perhaps; None at the end."""
    if not selector.select(PROGRESS_SECONDS):
        return (b"",)
    data = os.read(descriptor, 65536)
    return (data,) if data else None


def _install(tree: Path, pahole: str, target: Path) -> None:
    """As linux-image and linux-headers lay their files out."""
    version = (tree / "include/config/kernel.release").read_text().strip()
    say(f"installing {version}")
    (target / "boot").mkdir(parents=True)
    shutil.copy(tree / "arch/x86/boot/bzImage", target / "boot" / f"vmlinuz-{version}")
    paths = [f"INSTALL_MOD_PATH={target}", "INSTALL_MOD_STRIP=1", "DEPMOD=true"]
    call(["make", "-s", pahole, *paths, "modules_install"], f"install the modules of {version}", cwd=tree)
    (target / "lib/modules" / version / "build").unlink(missing_ok=True)  # points into this tree
    headers = target / "headers" / f"linux-headers-{version}"
    script = f"+$(srctree)/scripts/package/install-extmod-build {headers}"
    words = ["make", "-s", pahole, "run-command", f"KBUILD_RUN_COMMAND={script}"]
    call(words, f"install the headers of {version}", cwd=tree)
    shutil.copy(tree / ".config", headers)


def _home(name: str) -> Path:
    return KERNELS / f"{name}.build"


def _tree(name: str, package: Path) -> Path:
    """The unpacked source; the one of an interrupted build if it was of the same package.

    Also when the configuration has changed since: make compiles what that touches.
    """
    home = _home(name)
    made_from = home / "made-from"
    if not (made_from.exists() and made_from.read_text() == package.name):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        say(f"unpacking {package.name}")
        call(["dpkg-deb", "-x", package, home / "package"], f"unpack {package.name}")
        for file in (home / "package").glob("usr/src/linux-source-*.tar.xz"):
            call(["tar", "-C", home, "-xf", file], f"unpack {file.name}")
        shutil.rmtree(home / "package")
        made_from.write_text(package.name)
    found = [path.parent for path in home.glob("*/Kconfig")]
    if len(found) != 1:
        raise LabError(f"cannot build {name}: {package.name} holds {len(found)} source trees instead of one")
    return found[0]


def _pahole(suite: str) -> Path:
    """A command that runs the suite's pahole with the suite's libraries; the toolbox keeps its own."""
    home = KERNELS / f"pahole-{suite}"
    command = home / "pahole"
    if not command.exists():
        shutil.rmtree(home, ignore_errors=True)
        for package in archive.fetch(suite, list(PAHOLE), KERNELS / "packages"):
            call(["dpkg-deb", "-x", package, home], f"unpack {package.name}")
        script = (
            f'#!/bin/sh\nLD_LIBRARY_PATH=$(echo {home}/usr/lib/*-linux-gnu) exec {home}/usr/bin/pahole "$@"\n'
        )
        command.write_text(script)
        command.chmod(0o755)
    say(f"pahole of {suite}: {call([command, '--version'], f'run the pahole of {suite}').strip()}")
    return command
