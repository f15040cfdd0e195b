# SPDX-License-Identifier: Apache-2.0
"""Hashes of the meaning of sources: comments, docstrings and layout do not count, nor does the file
or the place in it where a declaration stands.

A C file is the set of its top-level declarations, a Python file that of its statements without its imports.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lab.paths import REPO

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# This finds comments of C, and literals, which stay: one may look as if it had a comment.
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|(?P<kept>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL)
TOKEN = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^"'{};])+|[{};]""", re.DOTALL)
GUARD = re.compile(r"\s*#ifndef (\w+)\n\s*#define \1\n(?P<guarded>.*)\n\s*#endif\s*", re.DOTALL)
PROTOTYPE = re.compile(r"(?:static|GLOBAL) [^={]*\);")
CONDITION = re.compile(r"^\s*#\s*(?:if|el|endif)", re.MULTILINE)


def meaning(paths: Iterable[Path]) -> str:
    """Return the hash of these files: hexadecimal, of 64 digits."""
    found = sorted({declaration for path in paths for declaration in declarations(path)})
    return hashlib.sha256("\0".join(found).encode()).hexdigest()


def declarations(path: Path) -> Iterator[str]:
    """Yield what a source declares; another file is one declaration, of its path and its bytes."""
    if path.suffix == ".py":
        tree = _without_docstrings(ast.parse(path.read_text()))
        yield from (ast.dump(each) for each in tree.body if not isinstance(each, ast.Import | ast.ImportFrom))
    elif path.suffix in (".c", ".h"):
        yield from _of_c(path.read_text())
    else:
        yield f"{path.relative_to(REPO)} {path.read_bytes().hex()}"


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return tree


def uncommented(text: str) -> str:
    """Return a text of C with a blank in place of each comment."""
    return COMMENT.sub(lambda found: found["kept"] or " ", text)


def _of_c(text: str) -> Iterator[str]:
    text = uncommented(text.replace("\\\n", " "))
    guarded = GUARD.fullmatch(text)
    text = guarded["guarded"] if guarded else text
    if CONDITION.search(text):  # the order of its lines counts
        yield _packed(text)
        return
    directives = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    yield from (_packed(line) for line in directives if not line.split("#")[1].lstrip().startswith("include"))
    pieces = filter(None, map(_packed, _split(code)))
    yield from (piece for piece in pieces if not PROTOTYPE.fullmatch(piece))


def _split(code: str) -> Iterator[str]:
    """Yield declarations: each ends at its semicolon, or at the brace that closes a function's body."""
    piece, depth, function = "", 0, False
    for token in TOKEN.findall(code):
        if token == "{":
            function = function or (not depth and piece.rstrip().endswith(")"))
        depth += {"{": 1, "}": -1}.get(token, 0)
        piece += token
        if not depth and (token == ";" or (token == "}" and function)):
            yield piece
            piece, function = "", False
    yield piece


def _packed(text: str) -> str:
    return " ".join(text.split())
