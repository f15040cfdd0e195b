# SPDX-License-Identifier: Apache-2.0
"""Compiles a kernel from one of Debian's linux-source packages: the rows of kernels.toml with a `config`.

It leaves what an unpacked linux-image package would hold, and beside it `headers`, which modules are
built against. This takes many minutes, so the source tree stays until all is done, and an interrupted
build goes on where it was.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lab import archive, compiling, packages
from lab.errors import LabError
from lab.paths import KERNELS, LAB
from lab.shell import call, say

# Only this needs them.
PACKAGES = ("bc", "bison", "flex", "libdw1t64", "libelf-dev")
# A pahole before 1.32 drops the tags of kfuncs, and no BPF scheduler loads then; trixie has an older one.
PAHOLE_SUITE = "forky"
PAHOLE = ("pahole", "libdwarves1", "libbpf1")


def mark(config: Sequence[str], patterns: list[str]) -> str:
    """Return the hash that tells whether a prepared row still is what kernels.toml asks for.

    It leaves out the package's version: the archive moves on, a row that was built stays what it is.
    """
    text = "\n".join([*patterns, options(config)])
    return hashlib.sha256(text.encode()).hexdigest()


def options(config: Sequence[str]) -> str:
    """Return the lines of these files of the lab, one after the other."""
    return "".join((LAB / name).read_text() for name in config)


def kernel(name: str, config: Sequence[str], package: Path, target: Path) -> None:
    """Build `package` with the options of `config`'s files; `target` gets boot/, lib/modules/, headers/."""
    begin = time.monotonic()
    packages.need(PACKAGES, "kernels are compiled with them")
    pahole = f"PAHOLE={_pahole(PAHOLE_SUITE)}"
    tree = _tree(name, package)
    configure(tree, options(config), pahole)
    say(f"compiling {tree.name} for {name} at low priority: half an hour of CPU time")
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    compiling.run(tree, ["make", jobs, pahole, "bzImage", "modules"])
    _install(tree, pahole, target)
    say(f"built {name} in {(time.monotonic() - begin) / 60:.0f} minutes")


def forget(name: str) -> None:
    """Remove the tree a row was built in."""
    shutil.rmtree(_home(name), ignore_errors=True)


def configure(tree: Path, fragment: str, pahole: str) -> None:
    """Nothing but the fragment's options and what they need; every one of them must have been accepted."""
    file = tree.with_name("fragment")
    file.write_text(fragment)
    words = ["make", "-s", pahole, f"KCONFIG_ALLCONFIG={file}", "allnoconfig"]
    call(words, f"configure {tree.name}", cwd=tree)
    if lost := refused(fragment, (tree / ".config").read_text()):
        raise LabError(f"cannot build {tree.name}: it does not accept {', '.join(lost)}")


def refused(fragment: str, config: str) -> list[str]:
    """Options of a fragment that a configuration does not have as asked for."""
    asked = [line.strip() for line in fragment.splitlines() if line.startswith("CONFIG_")]
    given = set(config.splitlines())
    return [line for line in asked if line not in given]


def _install(tree: Path, pahole: str, target: Path) -> None:
    """Install the built kernel as linux-image and linux-headers lay their files out."""
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
