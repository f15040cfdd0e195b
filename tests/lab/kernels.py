# SPDX-License-Identifier: Apache-2.0
"""The kernels of kernels.toml, and what is made of a row before it can boot.

A prepared row is a folder build/lab/kernels/ROW with vmlinuz, vmlinux, modules.ext4 (laid over the root file
system) and early/WAY/ (the modules the initramfs loads where disks are "disk" or "memory", numbered in
loading order); of a row that was compiled here also headers/ (what modules are built against).
"""

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import archive, build, bzimage, image, modules
from lab.errors import LabError
from lab.paths import KERNELS, KERNELS_TOML
from lab.shell import call, lock, say


@dataclass(frozen=True)
class Features:
    """The features a test may expect of a row; kernels.toml explains each."""

    sched_ext: bool
    kick_cpu: bool
    pause_exits: bool
    kvm: bool


@dataclass(frozen=True)
class Row:
    """A kernel that the lab knows."""

    name: str
    suite: str
    packages: list[str]
    headers: list[str]
    pool: dict[str, str]
    pool_packages: dict[str, str]
    append: str
    features: Features
    skip: dict[str, str]
    config: list[str]
    apart: str | None
    machine: str

    @property
    def builds_modules(self) -> bool:
        """True if the archive has what gang.ko is built with."""
        return bool(self.headers or self.pool or self.config)

    @property
    def target(self) -> str | None:
        """The `make` target that tests a row which the default test run leaves out; None for other rows."""
        if not self.apart:
            return None
        if self.machine == "bochs":
            return "test-intel"
        return "test-debug" if self.is_debug else "test-long"

    @property
    def is_debug(self) -> bool:
        """True of a kernel that watches its own locks and memory."""
        return "debug.config" in self.config


@dataclass(frozen=True)
class Kernel:
    """A prepared row: the files a VM boots from. vmlinux: what is packed in vmlinuz, but of a row that was
    compiled here, which has headers instead."""

    row: Row
    version: str
    vmlinuz: Path
    vmlinux: Path | None
    modules: Path
    early: Mapping[str, list[Path]]
    headers: Path | None


def rows() -> dict[str, Row]:
    """All rows by name, in the file's order."""
    with KERNELS_TOML.open("rb") as file:
        tables = tomllib.load(file)["kernel"]
    return {
        name: Row(
            name=name,
            suite=table["suite"],
            packages=table["packages"],
            headers=table.get("headers", []),
            pool=_files(table, "pool"),
            pool_packages=_files(table, "pool_packages"),
            append=table["append"],
            features=Features(**table["features"]),
            skip={entry["test"]: entry["reason"] for entry in table["skip"]},
            config=table.get("config", []),
            apart=table.get("apart"),
            machine=table.get("machine", "qemu"),
        )
        for name, table in tables.items()
    }


def _files(table: dict[str, Any], key: str) -> dict[str, str]:
    return {entry["file"]: entry["sha256"] for entry in table.get(key, [])}


def row(name: str) -> Row:
    """The row of this name."""
    known = rows()
    if name not in known:
        raise LabError(f"cannot boot kernel {name}: {KERNELS_TOML.name} has only {', '.join(known)}")
    return known[name]


def prepare(wanted: Row) -> Kernel:
    """Fetch and unpack the row's kernel unless that has been done."""
    home = KERNELS / wanted.name
    with lock(f"kernel-{wanted.name}"):
        if not _is_current(wanted, home):
            _build(wanted, home)
    version = (home / "version").read_text().strip()
    return Kernel(
        row=wanted,
        version=version,
        vmlinuz=home / "vmlinuz",
        vmlinux=None if wanted.config else home / "vmlinux",
        modules=home / "modules.ext4",
        early={way.name: sorted(way.iterdir()) for way in (home / "early").iterdir()},
        headers=home / "headers" / f"linux-headers-{version}" if wanted.config else None,
    )


def prepared_version(wanted: Row) -> str | None:
    """The version on disk, without fetching anything."""
    file = KERNELS / wanted.name / "version"
    return file.read_text().strip() if file.exists() else None


def _is_current(wanted: Row, home: Path) -> bool:
    """A row stays as it was made until what it was made from changes."""
    made_from = home / "made-from"
    return made_from.exists() and made_from.read_text() == _recipe(wanted)


def _recipe(wanted: Row) -> str:
    """Return how a row's packages are turned into files, or the build's mark if the row is compiled."""
    if wanted.config:
        return build.mark(wanted.config, wanted.packages)
    early = [f"{way}: {' '.join(names)}" for way, names in modules.EARLY[wanted.machine].items()]
    return " ".join(["vmlinux", *early, image.RECIPE])


def _build(wanted: Row, home: Path) -> None:
    """Build a row, under a temporary name first: a folder called ROW is complete."""
    work = home.with_name(f"{home.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    unpacked = work / "unpacked"
    unpacked.mkdir(parents=True)
    recipe = _recipe(wanted)  # before: compiling takes long enough to change it meanwhile
    _fill(wanted, work, unpacked)
    version, tree = _modules_tree(unpacked, work / "modules")
    for way, names in modules.EARLY[wanted.machine].items():
        early = work / "early" / way
        early.mkdir(parents=True)
        for number, module in enumerate(modules.load_order(tree, names)):
            name = module.name.split(".ko")[0]
            (early / f"{number:02}-{name}.ko").write_bytes(modules.contents(module))
    _vmlinuz(unpacked, tree).rename(work / "vmlinuz")
    if not wanted.config:
        (work / "vmlinux").write_bytes(bzimage.unpacked((work / "vmlinuz").read_bytes()))
    say(f"making the module image of {version}")
    image.make(work / "modules", work / "modules.ext4")
    (work / "version").write_text(f"{version}\n")
    (work / "made-from").write_text(recipe)
    shutil.rmtree(unpacked)
    shutil.rmtree(work / "modules")
    shutil.rmtree(home, ignore_errors=True)
    work.rename(home)
    build.forget(wanted.name)


def _fill(wanted: Row, work: Path, unpacked: Path) -> None:
    """Packages as they are, or what is compiled from the one with the source."""
    packages = archive.fetch(wanted.suite, wanted.packages, KERNELS / "packages")
    packages += [
        archive.fetch_pool(archive.KERNELS, file, sha256, KERNELS / "packages")
        for file, sha256 in wanted.pool_packages.items()
    ]
    if not wanted.config:
        for package in packages:
            say(f"unpacking {package.name}")
            call(["dpkg-deb", "-x", package, unpacked], f"unpack {package.name}")
        return
    build.kernel(wanted.name, wanted.config, packages[0], unpacked)
    (unpacked / "headers").rename(work / "headers")


def _modules_tree(unpacked: Path, target: Path) -> tuple[str, Path]:
    """Move the modules to usr/lib/modules/VERSION below `target`, wherever the package had them."""
    homes = [
        path.parent
        for top in ("usr/lib", "lib")
        for path in unpacked.glob(f"{top}/modules/*/modules.builtin")
    ]
    if len(homes) != 1:
        raise LabError(f"cannot prepare a kernel: its packages hold {len(homes)} module trees instead of one")
    version = homes[0].name
    tree = target / "usr" / "lib" / "modules" / version
    tree.parent.mkdir(parents=True)
    homes[0].rename(tree)
    # depmod looks below lib/modules; the image itself must not carry a lib next to the root's symlink.
    (target / "lib").symlink_to("usr/lib")
    call(["depmod", "-b", target, version], f"index the modules of {version}")
    (target / "lib").unlink()
    return version, tree


def _vmlinuz(unpacked: Path, tree: Path) -> Path:
    """Return the vmlinuz, in /boot as Debian has always had it, or among the modules as from 7.2."""
    found = [*unpacked.glob("boot/vmlinuz-*"), *tree.glob("vmlinuz")]
    if len(found) != 1:
        raise LabError(
            f"cannot prepare kernel {tree.name}: its packages hold {len(found)} vmlinuz files instead of one"
        )
    return found[0]
