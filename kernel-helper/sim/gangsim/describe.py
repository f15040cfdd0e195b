# SPDX-License-Identifier: Apache-2.0
"""The structs of describe.h for ctypes, read from its text: no second copy to keep."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

HEADER = Path(__file__).resolve().parents[1] / "model/describe.h"
CPUS = 1024
NONE, NEVER = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_TYPES = {
    "unsigned long long": ctypes.c_uint64,
    "unsigned int": ctypes.c_uint32,
    "int": ctypes.c_int32,
}
_TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
_STRUCT = re.compile(r"^struct sim_(\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_MEMBER = re.compile(
    r"(unsigned long long|unsigned int|int|const struct \w+|struct \w+|char) (\*?)(\w+)(\[[^;]*\])?;"
)


def _fields(body: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for kind, pointer, name, array in _MEMBER.findall(body):
        made: Any = ctypes.c_void_p if pointer else _TYPES[kind]
        found.append((name, made * (CPUS // 64) if array else made))
    return found


STRUCTS: dict[str, type[ctypes.Structure]] = {
    name: type(name, (ctypes.Structure,), {"_fields_": _fields(body)})
    for name, body in _STRUCT.findall(_TEXT)
}


def values(struct: ctypes.Structure) -> dict[str, int]:
    """Return a struct's members by name, without padding."""
    return {field[0]: getattr(struct, field[0]) for field in struct._fields_ if field[0] != "pad"}
