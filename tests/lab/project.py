# SPDX-License-Identifier: Apache-2.0
"""The project, installed into an image that is laid over the root file system of every VM."""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lab import image
from lab.errors import LabError
from lab.meaning import meaning
from lab.paths import BUILD, PROJECT_IMAGE, REPO
from lab.shell import call, lock, say

SOURCES = ("daemon", "kernel-helper", "policies", "systemd")
# These files decide who runs and when, and count it.
SCHEDULER = (
    "daemon/gangd/actuate/backend.py",
    "daemon/gangd/actuate/gang_ko.py",
    "daemon/gangd/actuate/gang_setting.py",
    "daemon/gangd/actuate/sched_ext.py",
    "daemon/gangd/bpf",
    "daemon/gangd/measure",
    "kernel-helper",
)
# These choose policies and places, and say how often that is done. The rest of the daemon finds guests, and
# writes what these decided, for which a round waits.
PLANNING = (
    *("config", "host_thread", "loops", "planner", "model/columns", "model/domain", "model/evidence"),
    *("model/history", "model/moves", "model/placement", "model/plan", "model/policy"),
)
PLANNER = (*(f"daemon/gangd/{name}.py" for name in PLANNING), "policies")
# sched_ext does without these of them.
MODULE = ("daemon/gangd/actuate/backend.py", "daemon/gangd/actuate/gang_ko.py", "kernel-helper/module")
# Neither of these schedules anyone.
APART = ("kernel-helper/dkms.conf", "kernel-helper/sim")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "Makefile", "README.md")
GENERATED = frozenset({".so", ".o", ".d", ".pyc", ".ko", ".mod", ".cmd"})
GENERATED_FOLDERS = frozenset({"__pycache__", "build"})


def installed() -> Path:
    """The project's image, made anew when the sources have changed since."""
    mark = PROJECT_IMAGE.with_suffix(".fingerprint")
    with lock("project"):
        wanted = f"{fingerprint()} {image.RECIPE}\n"
        if PROJECT_IMAGE.exists() and mark.exists() and mark.read_text() == wanted:
            return PROJECT_IMAGE
        if not (REPO / "setup.py").exists():
            raise LabError(
                "cannot install the project into the VM: there is no setup.py (--no-project boots without)"
            )
        mark.unlink(missing_ok=True)
        _install()
        mark.write_text(wanted)
    return PROJECT_IMAGE


def source_package(folder: Path) -> Path:
    """The source package, put into `folder` by setuptools; MANIFEST.in says what is in it."""
    with lock("project"):
        call(
            [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder],
            "pack the source",
            cwd=REPO,
        )
    (archive,) = folder.glob("*.tar.gz")
    return archive


def fingerprint(*more: str) -> str:
    """A hash of everything the installed project is made from, and of these folders."""
    return _hash(_sources(more))


def measured(module: bool = True, planner: bool = True) -> str:
    """A hash of what a figure is about, without its pages. module: gang.ko and its backend too, which are not
    used where sched_ext schedules; planner: what plans and chooses, which a driver may do itself."""
    apart = {REPO / name for name in (*APART, *(() if module else MODULE))}
    tops = sorted((*SCHEDULER, *(PLANNER if planner else ())))
    found = (path for path in _below(tops) if path.suffix != ".md")
    return meaning(path for path in found if not apart & {path, *path.parents})


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(REPO)}\0".encode())
        digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _sources(more: Sequence[str]) -> Iterator[Path]:
    yield from (REPO / name for name in FILES if (REPO / name).is_file())
    yield from _below((*SOURCES, *more))


def _below(tops: Sequence[str]) -> Iterator[Path]:
    for top in tops:
        if (REPO / top).is_file():
            yield REPO / top
        for folder, folders, names in os.walk(REPO / top):
            folders[:] = sorted(name for name in folders if not _is_generated_folder(name))
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix not in GENERATED and path.is_file():
                    yield path


def _is_generated_folder(name: str) -> bool:
    return name in GENERATED_FOLDERS or name.endswith(".egg-info")


def _install() -> None:
    say("installing the project into its image")
    tree = BUILD / "project.new"
    shutil.rmtree(tree, ignore_errors=True)
    call(["make", "-C", REPO, "--no-print-directory", "install", f"DESTDIR={tree}"], "install the project")
    image.make(tree, PROJECT_IMAGE)
    shutil.rmtree(tree)
