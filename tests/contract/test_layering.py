# SPDX-License-Identifier: Apache-2.0
"""Layers: which room may import which, and where kernels may differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.tree import ROOT, SOURCE_SUFFIXES, files, name
from lab.closure import closure
from lab.meaning import uncommented

GANGD = ROOT / "daemon/gangd"
POLICIES = ROOT / "policies/gang_policies"

# Room -> rooms it may import. Itself and gangd.__version__ are always allowed.
OPEN = {"errors", "config"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "notify": set(),
    "logs": {"model", "control"},
    "trouble": {"model", "logs", "errors"},
    "config": {"model", "errors"},
    "virt": {"errors"},
    "systemd": {"errors"},
    "model": {"errors"},
    "guard": {"model", "errors"},
    "handover": {"model"},
    "planner": {"model", "guard", "errors"},
    "gang_policies": {"model"},
    "bpf": set(),
    "events": {"model", "virt", "trouble"} | OPEN,
    "control": {"model", "virt"} | OPEN,
    "actuate": {"model", "bpf"} | OPEN,
    "measure": {"model", "bpf", "trouble"} | OPEN,
    "checks": {"model", "bpf", "actuate", "measure"},
    "trace": {"bpf", "measure", "errors"},
    "cli": {"model", "control", "checks", "trace"} | OPEN,
    "export": {"model", "control", "notify", "logs", "trace"} | OPEN,
}
# These modules wire the rooms together: they import all, and only each other import them.
TOP = {"daemon", "loops", "answers", "previews", "host_thread", "service", "undo_command", "__main__"}

# The pure rooms import these libraries alone: none brings a clock, a kernel or a network.
PURE = ("model", "planner", "gang_policies")
PURE_LIBRARIES = {
    *("__future__", "collections", "dataclasses", "enum", "fnmatch", "functools", "gang_policies", "gangd"),
    *("importlib", "inspect", "itertools", "logging", "math", "operator", "re", "types", "typing", "xml"),
    *("bisect", "heapq"),
    "pathlib",  # topology.py reads sysfs below a folder that it is given
}
# Each of these libraries has one home.
HOMES = {
    "libvirt": {"virt", "events"},
    "sdbus": {"control", "systemd"},  # gangd's own bus name; properties of systemd's units
    "prometheus_client": {"export"},
    "msgspec": {"config", "actuate", "control", "cli", "handover"},
    "systemd": {"logs", "notify"},
    "tomllib": {"config"},
}

# The only files that know kernels differ.
COMPAT = {
    "kernel-helper/bpf/kernel/compat.bpf.h",
    "kernel-helper/module/compat.h",
    "daemon/gangd/actuate/preflight.py",
}
VERSION_CHECK = re.compile(r"LINUX_VERSION_CODE|LINUX_KERNEL_VERSION|\bKERNEL_VERSION\b|\bkver\b")


def room_of(path: Path) -> str:
    """The room a module belongs to: a folder of gangd, or a module at its top."""
    if path.is_relative_to(POLICIES):
        return "gang_policies"
    return path.relative_to(GANGD).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything a module imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(tree: ast.AST) -> Iterator[str]:
    """Rooms of ours that a module imports."""
    for dotted in imported(tree):
        first, _, rest = dotted.partition(".")
        if first == "gang_policies":
            yield first
        elif first == "gangd" and rest and rest != "__version__":
            yield rest.partition(".")[0]


def forbidden(room: str, text: str) -> set[str]:
    """Return the imports of a module of `room` that it must not have."""
    tree = ast.parse(text)
    found = set(rooms(tree)) - {room}
    wrong = set() if room in TOP else found - ALLOWED.get(room, set())
    libraries = {dotted.partition(".")[0] for dotted in imported(tree)}
    wrong |= {library for library in libraries if room not in HOMES.get(library, {room})}
    return wrong | (libraries - PURE_LIBRARIES if room in PURE else set())


def modules() -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(GANGD)] + [
        path for path in files() if path.suffix == ".py" and path.is_relative_to(POLICIES)
    ]


def test_every_room_is_in_the_table() -> None:
    """A new folder gets its line before it gets its first import."""
    known = {room_of(path) for path in modules()} - {"__init__"}
    assert known == set(ALLOWED) | TOP


def test_imports_follow_the_table() -> None:
    wrong = {name(p): bad for p in modules() if (bad := forbidden(room_of(p), p.read_text()))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("room", "text", "found"),
    [
        ("model", "from gangd import bpf", "bpf"),
        ("model", "def late():\n    import time", "time"),
        ("gang_policies", "import urllib.request", "urllib"),
        ("gang_policies", "from gangd.events.libvirt import LibvirtSource", "events"),
        ("export", "from gangd.daemon import Daemon", "daemon"),
        ("cli", "import sdbus.sd_bus_internals", "sdbus"),
        ("measure", "import gangd.actuate.journal", "actuate"),
    ],
)
def test_a_planted_violation_is_found(room: str, text: str, found: str) -> None:
    assert forbidden(room, text) == {found}


def test_the_architecture_page_has_the_same_table() -> None:
    """docs/architecture.md lists the rooms and what each may import, as above."""
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|$", section, re.MULTILINE)
    shown: dict[str, set[str]] = {}
    for names, allowed in rows:
        for room in re.findall(r"`([\w/]+)`", names):
            shown[room] = set(re.findall(r"`(\w+)`", allowed))
    assert {room: shown[room] for room in shown if room not in TOP} == ALLOWED
    assert set(shown) == set(ALLOWED) | TOP


LOCAL = re.compile(r'^#include "([\w/.]+)"', re.MULTILINE)
LAYERS = re.compile(r"^\| ((?:`\w+` ?)+) \|", re.MULTILINE)
ROOMS = re.compile(r"^\| `([\w/]+)` \| [^|]* \| ([^|]*)\|$", re.MULTILINE)
MODULE = ROOT / "kernel-helper/module"


def layers_of(page: Path) -> dict[str, int]:
    """Return the row of each file in the table of layers that `page` has, counted from the top."""
    section = page.read_text().partition("## Layers")[2].partition("\n## ")[0]
    rows = [re.findall(r"\w+", cells) for cells in LAYERS.findall(section)]
    return {stem: row for row, stems in enumerate(rows) for stem in stems}


def climbing(stem: str, text: str, layers: dict[str, int]) -> set[str]:
    """Return the files of the table that a C file includes and that are not in a row below its own."""
    used = {Path(include).stem for include in LOCAL.findall(text)} - {stem}
    return {other for other in used & set(layers) if layers[other] <= layers[stem]}


def no_file_climbs(page: Path, sources: list[Path]) -> dict[str, int]:
    """Fail unless each file is in the table of layers of `page` and uses those below; return the table."""
    layers = layers_of(page)
    assert set(layers) == {path.stem for path in sources}
    wrong = {name(p): found for p in sources if (found := climbing(p.stem, p.read_text(), layers))}
    assert wrong == {}
    return layers


def rooms_of(text: str) -> dict[str, set[str]]:
    """Return the rooms that each room of a table (room, what is in it, rooms it uses) may use."""
    return {room: set(re.findall(r"[\w/]+", uses)) for room, uses in ROOMS.findall(text)}


def test_no_file_of_the_module_uses_one_above_it() -> None:
    """The README of gang.ko lists its layers; every file is in one, and uses those below."""
    sources = [path for path in MODULE.glob("*.[ch]") if ".mod" not in path.name]
    layers = no_file_climbs(MODULE / "README.md", sources)
    text = '#include "boost.h"\n#include "kick.h"\n#include "dev.h"'
    assert climbing("slot", text, layers) == {"boost", "dev"}


SIMULATOR = ROOT / "kernel-helper/sim"


def test_no_file_of_the_simulator_uses_one_above_it() -> None:
    """The README of the simulator lists rooms and layers; a file uses what both of them allow."""
    page = SIMULATOR / "README.md"
    rooms = rooms_of(page.read_text())
    assert set(rooms) == {path.parent.name for path in SIMULATOR.glob("*/*.[ch]")} | {"gangsim"}
    sources = [path for path in SIMULATOR.glob("*/*.[ch]") if path.parent.name != "shim"]
    no_file_climbs(page, sources)
    for path in (*sources, *SIMULATOR.glob("shim/*.[ch]")):
        used = {
            Path(include).parts[0]
            for include in LOCAL.findall(path.read_text())
            if "/" in include and ".bpf." not in include
        }
        assert used <= rooms[path.parent.name] | {path.parent.name}, name(path)


BPF = ROOT / "kernel-helper/bpf"
FLOORS = ("kernel", "state", "fair", "gang", "pick", "ops")
DECLARED = re.compile(
    r"^(?:#define (\w+)|(?:static|GLOBAL)\b[^;={]*?\b(\w+)\((?=[^;]*\n?\{)|(?:struct|enum) (\w+) \{)",
    re.MULTILINE,
)
USED = re.compile(r"\b[A-Z][A-Z_]+\b|(?<![.>])\b\w+(?=\()|\bstruct \w+")


def reached(path: Path) -> set[Path]:
    """Return the headers of the scheduler that a file includes, in the end, and the file itself."""

    def included(one: Path) -> list[Path]:
        return [BPF / name for name in LOCAL.findall(one.read_text()) if (BPF / name).is_file()]

    return closure(path, included)


def declared(path: Path) -> set[str]:
    """Return the functions, macros and structs ("struct name") that a header of the scheduler declares."""
    found = DECLARED.findall(uncommented(path.read_text()))
    return {macro or function or f"struct {struct}" for macro, function, struct in found}


def used_in(path: Path) -> set[str]:
    """Return the words of a header that may name such a declaration."""
    text = uncommented(path.read_text())
    return set(USED.findall(LOCAL.sub("", text)))


def test_no_floor_of_the_scheduler_uses_one_above_it() -> None:
    """Each header includes what it uses, from its own floor or one below; none includes itself in the end."""
    headers = sorted(BPF.glob("*/*.h"))
    assert {path.parent.name for path in headers} == set(FLOORS)
    home = {word: path for path in headers for word in declared(path)}
    assert {"clock_at", "count", "GRAIN", "struct fair_task"} <= set(home)
    for path in headers:
        below = FLOORS[: FLOORS.index(path.parent.name) + 1]
        includes = [BPF / each for each in LOCAL.findall(path.read_text()) if "/" in each]
        assert {each.parent.name for each in includes} <= set(below), name(path)
        assert not [name(each) for each in includes if path in reached(each)], name(path)
        used = {home[word] for word in used_in(path) & set(home)}
        assert used <= reached(path), f"{name(path)} lacks {sorted(map(name, used - reached(path)))}"


def test_fairness_knows_no_gangs() -> None:
    """No file that says who is owed what has the word, in code or in comments."""
    found = {name(path) for path in (BPF / "fair").iterdir() if re.search(r"\bgangs?\b", path.read_text())}
    assert found == set()


TESTS = ROOT / "tests"
PROOF = ("bench", "lab", "vm")  # folders of tests/ with rooms; those that have their imports for themselves:
ROOMS_WITHIN = ("lab/guests", "lab/observe", "vm/boots", "vm/checks", "vm/checks/inside")


def room_of_test(place: str) -> str:
    """Return the narrowest room that a file or module of tests/ is in (`vm/checks/inside/host`)."""
    within = [room for room in ROOMS_WITHIN if place.startswith(f"{room}/")]
    return max(within, default=place.split("/")[0], key=len)


def used_rooms(path: Path) -> set[str]:
    """Return the rooms of tests/ that a file imports."""
    places = [dotted.replace(".", "/") for dotted in imported(ast.parse(path.read_text()))]
    return {room_of_test(place) for place in places if place.split("/")[0] in PROOF}


def test_the_architecture_page_has_the_rooms_of_the_lab() -> None:
    """The page names the imports of each, no more and no less; no two rooms import each other."""
    section = (ROOT / "docs/architecture.md").read_text().partition("## The proof")[2].partition("\n## ")[0]
    shown = rooms_of(section)
    found: dict[str, set[str]] = {}
    for path in (path for top in PROOF for path in (TESTS / top).rglob("*.py")):
        room = room_of_test(path.relative_to(TESTS).as_posix())
        found[room] = found.get(room, set()) | used_rooms(path) - {room}
    assert shown == found
    while shown:
        leaves = {room for room, uses in shown.items() if not uses & set(shown)}
        assert leaves, f"these import each other: {sorted(shown)}"
        shown = {room: uses for room, uses in shown.items() if room not in leaves}


def test_kernel_versions_are_compared_in_the_compat_files_only() -> None:
    """Everybody else asks for the feature."""
    looked_at = [p for p in files() if p.is_relative_to(GANGD) or p.is_relative_to(ROOT / "kernel-helper")]
    wrong = []
    for path in looked_at + [p for p in files() if p.is_relative_to(POLICIES)]:
        if name(path) in COMPAT or path.suffix not in SOURCE_SUFFIXES:
            continue
        text = path.read_text()
        if VERSION_CHECK.search(text) or (path.suffix == ".py" and examined_releases(text)):
            wrong.append(name(path))
    assert wrong == []


def examined_releases(text: str) -> list[int]:
    """Lines that do more with what names the kernel than hand its release on as an argument."""
    tree = ast.parse(text)
    handed_on = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    allowed = {id(part) for value in handed_on if ast.unparse(value) in RELEASES for part in ast.walk(value)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in allowed]
    return [node.lineno for node in calls if ast.unparse(node.func) in NAMES_KERNEL]


RELEASES = ("os.uname().release", "platform.release()")
NAMES_KERNEL = ("os.uname", "uname", "platform.release", "platform.uname", "platform.version")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("f(kernel=os.uname().release)", []),
        ("if os.uname().release >= '6.12': pass", [1]),
        ("u = os.uname()\nif u.release >= '6.12': pass", [1]),
        ("f(kernel=os.uname()[2])", [1]),
        ("x = 1\nmajor = platform.release().split('.')", [2]),
    ],
)
def test_a_planted_version_check_is_found(text: str, lines: list[int]) -> None:
    assert examined_releases(text) == lines
