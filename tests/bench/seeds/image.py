# SPDX-License-Identifier: Apache-2.0
"""The initrds of the Linux guests, one a load: the first process, and the programs that the load runs.

They are packed outside the VM, from what Debian ships: hackbench of rt-tests, dbench, PostgreSQL, GCC.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from lab import modules, packages
from lab.cpio import Archive
from lab.kernels import Kernel
from lab.meaning import meaning
from lab.paths import REPO
from lab.shell import call

GUEST = Path(__file__).with_name("guest")
HOME = REPO / "build" / "seeds"
POSTGRES = Path("/usr/lib/postgresql/17/bin")
NOBODY = "65534"
DRIVERS = ("virtio_pci", "virtio_blk", "virtio_net")
SCRIPT_LINES = 4000  # at least, of dbench's 600,000: a guest reads them all before it begins
# A guest compiles this little: an emulated one begins few files in a round, and should end some.
SOURCE = b"""
static unsigned int state;
unsigned int next(void) { state ^= state << 13; state ^= state >> 17; return state ^= state << 5; }
int sorted(const int *values, int number)
{
	for (int i = 1; i < number; i++)
		if (values[i - 1] > values[i])
			return 0;
	return 1;
}
"""
# The server has no work of its own: it would be in some rounds and not in others.
SETTINGS = """fsync = off
unix_socket_directories = '/tmp'
listen_addresses = ''
dynamic_shared_memory_type = mmap
shared_buffers = 16MB
max_connections = 20
autovacuum = off
checkpoint_timeout = 1d
"""


def fingerprint() -> str:
    """A hash of what runs in the guests, and of how they are run."""
    here = Path(__file__).parent
    ours = (here / f"{name}.py" for name in ("arms", "guests", "image"))
    return meaning([*sorted(GUEST.iterdir()), *ours])


def latency_initrd(kernel: Kernel) -> bytes:
    """Return the archive from which the guest boots whose disk and network are measured."""
    return with_drivers(GUEST / "latency.c", kernel, DRIVERS)


def with_drivers(source: Path, kernel: Kernel, drivers: tuple[str, ...]) -> bytes:
    """Return the archive of a guest that has a first process and these drivers of its kernel alone."""
    archive = Archive()
    for folder in ("dev", "modules"):
        archive.directory(folder)
    archive.file("init", _compiled(source, "-static", "-pthread"), 0o755)
    with tempfile.TemporaryDirectory() as folder:
        found = modules.extracted(kernel.modules, kernel.version, drivers, Path(folder))
        for number, module in enumerate(found):
            archive.file(f"modules/{number:02}", modules.contents(module))
    return archive.finish()


def initrd(load: str) -> bytes:
    """Return the archive from which a guest with this load boots."""
    archive = Archive()
    for folder in ("dev", "proc"):
        archive.directory(folder)
    archive.directory("tmp", 0o1777)
    archive.file("init", _compiled(GUEST / "init.c", "-static", "-fopenmp"), 0o755)
    if load in PROGRAMS:
        PROGRAMS[load](archive)
    return archive.finish()


def _compiled(source: Path, *options: str) -> bytes:
    HOME.mkdir(parents=True, exist_ok=True)
    target = HOME / f"{source.parents[1].name}-{source.stem}"  # seeds and the tile have an init each
    warnings = ("-Wall", "-Wextra", "-Werror")
    call(["gcc", "-O2", *warnings, *options, "-o", target, source], f"compile {source.name}")
    return target.read_bytes()


def _hackbench(archive: Archive) -> None:
    _counted(archive, Path("/usr/bin/hackbench"))


def _dbench(archive: Archive) -> None:
    packages.need(["dbench"], "a guest of the benchmark runs it")
    _counted(archive, Path("/usr/bin/dbench"))
    lines = Path("/usr/share/dbench/client.txt").read_text().splitlines()
    archive.file("client.txt", ("\n".join(whole(lines)) + "\n").encode())


def whole(lines: Iterable[str]) -> list[str]:
    """The beginning of dbench's script, up to where every file that was opened is closed again."""
    opened: set[str] = set()
    found = []
    for line in lines:
        found.append(line)
        words = line.split()
        if words[0] == "NTCreateX" and words[-1] == "NT_STATUS_OK":
            opened.add(words[-2])
        elif words[0] == "Close":
            opened.discard(words[1])
        if len(found) >= SCRIPT_LINES and not opened:
            break
    return found


def _compile(archive: Archive) -> None:
    compiler = Path(call(["gcc", "-print-prog-name=cc1"], "find the compiler").strip())
    _program(archive, compiler, "usr/bin/cc1")
    _counter(archive, "allocations")
    archive.file("compile.i", SOURCE)


def _pgbench(archive: Archive) -> None:
    packages.need(["postgresql-17"], "a guest of the benchmark runs it")
    for name in ("postgres", "pgbench"):
        _program(archive, POSTGRES / name)
    _counter(archive, "count")
    archive.file("etc/passwd", b"root:x:0:0::/:/\nnobody:x:65534:65534::/:/\n")
    archive.directory(str(POSTGRES.parent / "lib").lstrip("/"))  # the server wants it, and nothing in it
    _tree(archive, Path("/usr/share/postgresql/17/timezonesets"), int(NOBODY))
    _tree(archive, _cluster(), int(NOBODY), "data")


def _cluster() -> Path:
    """A data directory of PostgreSQL with pgbench's tables in it, at scale 1, made unless there is one."""
    data = HOME / "data"
    made = data / "made"
    if not (made.exists() and made.read_text() == SETTINGS):
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        shutil.chown(data, int(NOBODY), int(NOBODY))
        as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        call([*as_nobody, POSTGRES / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--locale=C"],
             "make a database")  # fmt: skip
        (data / "postgresql.conf").write_text(SETTINGS)
        control: list[str | Path] = [*as_nobody, POSTGRES / "pg_ctl", "-D", data, "-w", "-l", data / "log"]
        call([*control, "start"], "start the database")
        try:
            call(
                [POSTGRES / "pgbench", "-i", "-q", "-h", "/tmp", "-U", "postgres", "postgres"],
                "fill the database",
            )
        finally:
            call([*control, "stop"], "stop the database")
        made.write_text(SETTINGS)
    return data


def _counted(archive: Archive, program: Path) -> None:
    _counter(archive, "count")
    _program(archive, program)


def _counter(archive: Archive, name: str) -> None:
    """Add the library that counts what a program gets done."""
    archive.file("count.so", _compiled(GUEST / f"{name}.c", "-shared", "-fPIC"), 0o755)


def _program(archive: Archive, program: Path, name: str | None = None) -> None:
    archive.file(name or str(program).lstrip("/"), program.read_bytes(), 0o755)
    for file in libraries(program):
        archive.file(str(file).lstrip("/"), file.read_bytes(), 0o755)


def libraries(program: Path) -> list[Path]:
    """The shared objects that it is loaded with, its loader among them."""
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", call(["ldd", program], f"read {program}"))]


def _tree(archive: Archive, folder: Path, owner: int, name: str | None = None) -> None:
    """Add a folder with all that is in it, for its owner alone: PostgreSQL insists on that."""
    name = name or str(folder).lstrip("/")
    archive.directory(name, 0o700, owner)
    for found in sorted(folder.iterdir()):
        if found.is_dir():
            _tree(archive, found, owner, f"{name}/{found.name}")
        else:
            archive.file(f"{name}/{found.name}", found.read_bytes(), 0o600, owner)


PROGRAMS: dict[str, Callable[[Archive], None]] = {
    "hackbench": _hackbench,
    "dbench": _dbench,
    "compile": _compile,
    "pgbench": _pgbench,
}
LOADS = ("ebizzy", "barrier", *PROGRAMS)


def main() -> None:
    """Pack all initrds, for `make bench-seeds HOST=1`."""
    for load in LOADS:
        (HOME / f"{load}.initrd").write_bytes(initrd(load))


if __name__ == "__main__":
    main()
