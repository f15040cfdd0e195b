# SPDX-License-Identifier: Apache-2.0
"""gang.ko for a row of kernels.toml, built with Debian's headers of that kernel.

Usage: python3 -m lab.kmod [ROW...]     build for these rows, or for all, and say what each build said

The toolbox's own compiler builds all of them. Headers that were made for another one are told
so (`_options`), hence a build says nothing but what there is to say about the module.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab import archive, kernels
from lab.errors import LabError
from lab.kernels import Row
from lab.paths import HEADERS, KERNELS, MODULE_SOURCE, MODULES
from lab.shell import call, lock, say

PARTS = ("module", "include")
# Packages have absolute paths in their makefiles.
INSTALLED = re.compile(r"(?<![\w.])/usr/src/")


def headers(row: Row) -> Path:
    """The folder to build against (KDIR) for a row's kernel, fetched unless it is there."""
    compiled = kernels.prepare(row).headers if row.config else None
    if compiled:
        return compiled
    home = HEADERS / row.name
    with lock(f"headers-{row.name}"):
        if not home.exists():
            _unpack(row, home)
    (found,) = home.glob("usr/src/linux-headers-*-amd64")
    version, kernel = release(found), kernels.prepared_version(row)
    if kernel is not None and kernel != version:
        raise LabError(
            f"cannot build a module for kernel {row.name}: its headers are of {version} and the kernel is "
            f"{kernel}; remove {HEADERS.name}/{row.name} and {KERNELS.name}/{row.name}"
        )
    return found


def release(kdir: Path) -> str:
    """Return the release (`uname -r`) of the kernel that these headers belong to."""
    return kdir.name.removeprefix("linux-headers-")


def module(row: Row, debug: bool = False) -> Path:
    """gang.ko for a row, built unless it has been built from these sources. `said()` has the output."""
    kdir = headers(row)
    home = MODULES / (f"{row.name}-selftest" if debug else row.name)  # 7.2-debug is a row, too
    mark = _fingerprint(kdir)
    with lock(f"module-{home.name}"):
        if not (home / "mark").exists() or (home / "mark").read_text() != mark:
            _build(home, kdir, debug)
            (home / "mark").write_text(mark)
    return home / "module" / "gang.ko"


def said(built: Path) -> str:
    """Return the output of this module's build: warnings, or nothing."""
    return (built.parent.parent / "output").read_text()


def _unpack(row: Row, home: Path) -> None:
    work = home.with_name(f"{home.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    target = HEADERS / "packages"
    packages = archive.fetch(row.suite, row.headers, target) if row.headers else []
    pool = row.pool.items()
    packages += [archive.fetch_pool(archive.KERNELS, file, digest, target) for file, digest in pool]
    for package in packages:
        call(["dpkg-deb", "-x", package, work], f"unpack {package.name}")
    for makefile in work.glob("usr/src/linux-headers-*/Makefile"):
        if makefile.stat().st_size < 1000:  # the one that only includes the other
            makefile.write_text(INSTALLED.sub(f"{home}/usr/src/", makefile.read_text()))
    work.rename(home)


def _fingerprint(kdir: Path) -> str:
    digest = hashlib.sha256(kdir.name.encode())
    for path in sorted(path for part in PARTS for path in (MODULE_SOURCE / part).iterdir()):
        if path.is_file():
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _build(home: Path, kdir: Path, debug: bool) -> None:
    """Build gang.ko in a copy: Kbuild writes next to the sources."""
    shutil.rmtree(home, ignore_errors=True)
    for part in PARTS:
        shutil.copytree(MODULE_SOURCE / part, home / part)
    say(f"building gang.ko for {release(kdir)}{' with its self-test' if debug else ''}")
    command = ["make", "-s", "-C", home / "module", f"KDIR={kdir}", f"GANG_DEBUG={1 if debug else ''}"]
    words = [str(word) for word in [*command, *_options(kdir)]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise LabError(f"cannot build gang.ko for {release(kdir)}: make failed\n{tail}")
    (home / "output").write_text(done.stdout)


def _options(kdir: Path) -> list[str]:
    """CC: the toolbox has one compiler. No BTF: nothing here reads a module's, and the toolbox has no pahole,
    or one that came with DKMS and is not asked. Attributes: a newer compiler's, in the headers themselves."""
    options = ["CC=gcc", "CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_PAHOLE_VERSION=0", "PAHOLE=no-pahole"]
    built_with = re.search(r"^CONFIG_GCC_VERSION=(\d+)", (kdir / ".config").read_text(), re.MULTILINE)
    ours = int(call(["gcc", "-dumpversion"], "ask gcc for its version").split(".")[0])
    if built_with and int(built_with[1]) // 10000 > ours:
        options.append("KCFLAGS=-Wno-attributes")
    return options


def main(names: list[str]) -> int:
    """Build for the rows named, or for all; returns the exit status."""
    noisy = 0
    try:
        # A row of Bochs has the kernel of another.
        known = [row for row in kernels.rows().values() if row.machine == "qemu"]
        for row in [kernels.row(name) for name in names] or known:
            built = module(row)
            output = said(built).strip()
            noisy += bool(output)
            print(f"{row.name}: {built}{' with warnings' if output else ''}")
            if output:
                print(output)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 1 if noisy else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
