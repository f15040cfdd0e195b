# SPDX-License-Identifier: Apache-2.0
"""Only a change of what sources tell the machine makes a figure old."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import meaning

HEADER = """#ifndef A_H
#define A_H
#include "b.h"
#define ONE 1
%s
#endif
"""
MAP = 'struct { int a; } one SEC(".maps");'
SAME = [
    ("a.py", 'def f():\n    """One."""\n    return 1  # one', 'def f():\n\n    """Two."""\n    return 1'),
    ("a.py", "import one\nA = 1\nB = 2", "from two import one\nB = 2\nA = 1"),
    ("a.c", 'void g(void) { f("/* 1 */"); /* 1\n */ }', 'void g(void)\n{ f("/* 1 */");\n// 2\n}'),
    ("a.c", "int f(void) { return 1; }\nint g(void) { return 2; }",
     "int g(void) { return 2; } int f(void) { return 1; }"),
    ("a.c", "static int f(void);\nint g(void) { return f(); }\nstatic int f(void) { return 1; }",
     "static int f(void) { return 1; }\nint g(void) { return f(); }"),
    ("a.h", HEADER % MAP, MAP + "\n#define ONE 1"),
]  # fmt: skip
OTHER = [
    ("a.py", "def f():\n    return 1", "def f():\n    return 2"),
    ("a.py", "class C:\n    a = b = 1\n    a = 2", "class C:\n    a = 2\n    a = b = 1"),
    ("a.c", 'void g(void) { puts("/* 1 */"); }', 'void g(void) { puts("/* 2 */"); }'),
    ("a.c", "int f(void) { g(); h(); }", "int f(void) { h(); g(); }"),
    ("a.c", "#ifdef A\nint f;\n#else\nint g;\n#endif", "#ifdef A\nint g;\n#else\nint f;\n#endif"),
    ("a.h", HEADER % MAP, HEADER % MAP.replace("one", "two")),
    ("a.h", "#define ONE 1", "#define ONE 2"),
    ("a.toml", "one", "one # two"),
]
CASES = [*((*case, True) for case in SAME), *((*case, False) for case in OTHER)]


@pytest.mark.parametrize(("name", "one", "two", "same"), CASES)
def test_comments_layout_and_places_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, one: str, two: str, same: bool
) -> None:
    """A declaration counts, a literal in it too, and the order where the preprocessor chooses."""
    monkeypatch.setattr(meaning, "REPO", tmp_path)

    def hashed(text: str) -> str:
        (tmp_path / name).write_text(text)
        return meaning.meaning([tmp_path / name])

    assert (hashed(one) == hashed(two)) == same


def test_a_move_to_another_file_does_not_count(tmp_path: Path) -> None:
    """Two files of one declaration each mean what one file of both means."""
    one, two, both = (tmp_path / name for name in ("one.c", "two.h", "both.c"))
    one.write_text('#include "two.h"\nint f(void) { return g(); }')
    two.write_text(HEADER % "static int g(void) { return 1; }")
    both.write_text("#define ONE 1\nstatic int g(void) { return 1; }\nint f(void) { return g(); }")
    assert meaning.meaning([one, two]) == meaning.meaning([both])


def test_each_declaration_is_found_alone() -> None:
    """No declaration of the scheduler swallows the next one."""
    for path in sorted((meaning.REPO / "kernel-helper/bpf").rglob("*.bpf.*")):
        found = list(meaning.declarations(path))
        assert all(text.startswith("#") or text.endswith((";", "}")) for text in found)
        assert sum(" BPF_PROG(" in text for text in found) == path.read_text().count("\ns32 BPF_PROG(") + (
            sum(path.read_text().count(f"\n{kind} BPF_PROG(") for kind in ("void", "bool", "int"))
        )
