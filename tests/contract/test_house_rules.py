# SPDX-License-Identifier: Apache-2.0
"""The rules of every file: its license, its words, its size, and the names that it must not have."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from contract.tree import ROOT, SOURCE_SUFFIXES, files, name

FILE_LINES, FUNCTION_LINES, README_LINES = 400, 80, 150
GLOSSARY = "docs/glossary.md"
LONG_FILES = {
    "daemon/gangd/bpf/abi.py": "as long as the header it is generated from",
    "daemon/gangd/control/structs.py": "one table: every key of every document",
}

SPDX = re.compile(r"SPDX-License-Identifier: (.+?)(?: \*/| -->)?$", re.MULTILINE)
# Hosts that an address in the project may name.
HOSTS = {"www.freedesktop.org", "www.debian.org", "www.w3.org", "json-schema.org", "libvirt.org", "127.0.0.1"}
# Pages that tests/lab/distributions.toml has its facts from.
HOSTS |= {"docs.redhat.com", "gitlab.com", "github.com", "packages.ubuntu.com", "deepwiki.com"}
HOSTS |= {"canonical-kteam-docs.readthedocs-hosted.com", "blog.margrop.net", "www.thenextgentechinsider.com"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OPENERS = re.compile(
    r"(Who|What|Whose|Whom|Whoever|Whatever|Of|Nobody"
    r"|It|Its|As|And|So|One|With|Without|That|Whether|Where|The same)\b"
)
TEST_OPENERS = re.compile(r"test_(who|what|whose|whom|whoever|whatever|nobody)_")
# Rooms whose comments in C name their actor: a room is added once its comments do.
PLAIN_ROOMS = ("kernel-helper/bpf/", "kernel-helper/core/", "kernel-helper/module/")
# Such a comment must match none of these. NOBODY is a constant of the scheduler.
PLAIN = {
    "fragment": re.compile(r"\s*(?:(?:its?|as|and|so|one|with|without|the same)\b|\.\.\.)", re.IGNORECASE),
    "person": re.compile(r"(?s:.*)\b(?:[Ww]ho(?:ever|se|m)?|(?:[Nn]o|[Ss]ome|[Aa]ny|[Ee]very)body)\b"),
}
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*(.*?)\*/|//(.*?)$', re.DOTALL | re.MULTILINE)
ADDRESS = re.compile(r"https?://((?:[\w-]+\.)+[\w-]+)")
# Absolute paths that exist on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.}$/])/(?:work|home|Users|mnt|media)/[\w.]")


def is_source(path: Path) -> bool:
    return path.suffix in SOURCE_SUFFIXES or path.name == "Makefile" or path.read_bytes()[:2] == b"#!"


def license_of(path: Path) -> str:
    """Return the license that LICENSE names for a file."""
    place = name(path)
    if place.startswith(("kernel-helper/core/", "kernel-helper/include/")):
        return "GPL-2.0 OR Apache-2.0"
    kernel = ("kernel-helper/bpf/", "kernel-helper/module/", "tests/vm/checks/plant/")
    if place.startswith(kernel) or place == "kernel-helper/Makefile":
        return "GPL-2.0"
    return "Apache-2.0"


def test_every_source_file_names_the_right_license() -> None:
    """Every source file names its license in one of its first lines, after #! and <?xml."""
    wrong = {}
    for path in filter(is_source, files()):
        found = SPDX.findall("\n".join(path.read_text().splitlines()[:6]))
        if found != [license_of(path)]:
            wrong[name(path)] = found
    assert wrong == {}


def test_no_file_names_a_machine_or_a_mirror() -> None:
    """No file names a path of one machine, the host its apt downloads from, or an address not in HOSTS."""
    mirrors = apt_hosts()
    wrong = []
    for path in files():
        if name(path).startswith("LICENSES/"):
            continue
        text = path.read_text(errors="replace")
        wrong += [f"{name(path)}: {found}" for found in MACHINE_PATH.findall(text)]
        wrong += [f"{name(path)}: {host}" for host in mirrors if host in text]
        wrong += [f"{name(path)}: {host}" for host in ADDRESS.findall(text) if host not in HOSTS]
    assert wrong == []


def refused_words() -> re.Pattern[str]:
    """Return the words of the table that ends docs/glossary.md; a blank in one may be the end of a line."""
    table = (ROOT / GLOSSARY).read_text().partition("| Not | But |\n|---|---|\n")[2]
    words = [word for row in table.splitlines() for word in row.split("|")[1].strip().split(", ")]
    return re.compile(rf"\b({'|'.join(words)})s?\b".replace(" ", r"\s+(?:\*\s+|#\s+)?"), re.IGNORECASE)


def test_one_thing_has_one_word() -> None:
    """No file has a word for which the glossary has another one."""
    refused = refused_words()
    assert refused.search("a gang\n * domain") and not refused.search("a cache")
    read = [path for path in files() if path.suffix in {*SOURCE_SUFFIXES, ".md", ".toml", ".yml", ".json"}]
    kept = ("docs/decisions/", "docs/results/", GLOSSARY)
    wrong = {
        name(path): found[0]
        for path in read
        if not name(path).startswith(kept) and (found := refused.search(path.read_text(errors="replace")))
    }
    assert wrong == {}


def test_docstrings_name_their_actor() -> None:
    """No docstring opens with a headless relative clause or a fragment (CONTRIBUTING.md: Words)."""
    wrong = []
    for path in filter(is_source, files()):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DOCUMENTED) and OPENERS.match(ast.get_docstring(node) or ""):
                wrong.append(f"{name(path)}:{node.body[0].lineno}")
    assert wrong == []


def test_names_of_tests_name_their_actor() -> None:
    """No name of a test opens with a headless relative clause or with nobody (CONTRIBUTING.md: Words)."""
    wrong = []
    for path in files():
        if path.suffix == ".py" and name(path).startswith("tests/"):
            nodes = ast.walk(ast.parse(path.read_text()))
            found = [n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
            wrong += [f"{name(path)}: {each}" for each in found if TEST_OPENERS.match(each)]
    assert wrong == []


def c_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each comment, and its text without the stars of its lines."""
    for found in C_COMMENT.finditer(text):
        comment = found[1] or found[2]
        if comment:
            yield text.count("\n", 0, found.start()) + 1, re.sub(r"\n\s*\* ?", "\n", comment)


def test_comments_name_their_actor() -> None:
    """No comment of these rooms opens with a fragment, or calls a task or a CPU a person."""
    wrong = []
    for path in files():
        if path.suffix not in (".c", ".h") or not name(path).startswith(PLAIN_ROOMS):
            continue
        for line, comment in c_comments(path.read_text()):
            wrong += [f"{name(path)}:{line}: {rule}" for rule, found in PLAIN.items() if found.match(comment)]
    assert wrong == []


def apt_hosts() -> set[str]:
    """Hosts that the apt of the machine running this test is told to use."""
    base = Path("/etc/apt")
    sources = [base / "sources.list", *base.glob("sources.list.d/*"), *base.glob("apt.conf.d/*")]
    texts = [path.read_text(errors="replace") for path in sources if path.is_file()]
    return {host for text in texts for host in ADDRESS.findall(text)} - HOSTS


def c_functions(text: str) -> Iterator[tuple[int, int]]:
    """Yield first line and length of each function body: braces in column one."""
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            yield start, number - start + 1
            start = 0


def py_functions(text: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_stay_small() -> None:
    """Functions stay short, and the README too, which has to be read in one sitting."""
    wrong = []
    for path in files():
        if path.suffix not in (".py", ".c", ".h"):
            continue
        text = path.read_text(errors="replace")
        found = py_functions(text) if path.suffix == ".py" else c_functions(text)
        wrong += [f"{name(path)}:{line}: {n} lines" for line, n in found if n > FUNCTION_LINES]
    assert wrong == []
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_a_long_file_has_a_reason() -> None:
    """A file with one subject may be long: a warning asks for the reason, which belongs in LONG_FILES."""
    for path in files():
        if path.suffix not in (".py", ".c", ".h") or name(path) in LONG_FILES:
            continue
        lines = len(path.read_text(errors="replace").splitlines())
        if lines > FILE_LINES:
            warnings.warn(f"{name(path)} has {lines} lines: has it one subject?", stacklevel=1)
