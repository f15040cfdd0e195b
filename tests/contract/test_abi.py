# SPDX-License-Identifier: Apache-2.0
"""gang_abi.h as gcc lays it out = gangd.bpf.abi as ctypes lays it out = what abi2py.py writes now."""

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from docs.tools import counters
from gangd.bpf import abi
from gangd.bpf.record import Record
from gangd.model.counters import GangStats

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "kernel-helper/include/gang_abi.h"
STALE = "gang_abi.h changed: run `make -C kernel-helper abi`"
RECORDS = [value for value in vars(abi).values() if isinstance(value, type) and issubclass(value, Record)]
RECORDS.remove(Record)


def tool(*names: str) -> str:
    """Path of the first tool that is installed; a skip that names them when none is."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip(f"none of {', '.join(names)} is installed")


def c_name(record: type[Record]) -> str:
    """struct name: GangStats -> gang_stats."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in record.__name__).lstrip("_")


def python_layout() -> list[str]:
    lines = []
    for record in RECORDS:
        lines.append(f"{c_name(record)} {ctypes.sizeof(record)}")
        for name, *_ in record._fields_:
            field = getattr(record, name)
            lines.append(f"{c_name(record)}.{name} {field.offset} {field.size}")
    return lines


def c_program() -> str:
    lines = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{HEADER}"', "int main(void) {"]
    for record in RECORDS:
        struct = c_name(record)
        lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
        lines += [
            f'printf("{struct}.{name} %zu %zu\\n", offsetof(struct {struct}, {name}),'
            f" sizeof(((struct {struct} *)0)->{name}));"
            for name, *_ in record._fields_
        ]
    return "\n".join([*lines, "return 0; }", ""])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compiler_and_ctypes_agree_on_every_size_and_offset(tmp_path: Path, compiler: str) -> None:
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(c_program())
    found = tool("gcc", "cc") if compiler == "gcc" else tool("clang-19", "clang")
    build = subprocess.run([found, "-Wall", "-Werror", "-o", program, source], capture_output=True, text=True)
    assert build.returncode == 0, f"{STALE}\n{build.stderr}"
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == python_layout()


def test_records_have_no_hidden_padding() -> None:
    """Padding the compiler inserts is never initialised, and differs between targets."""
    for record in RECORDS:
        fields = sum(getattr(record, name).size for name, *_ in record._fields_)
        assert fields == ctypes.sizeof(record), record.__name__


def test_mirror_is_fresh() -> None:
    tool("bpftool")
    env = {**os.environ, "CLANG": tool("clang-19", "clang")}
    command = [sys.executable, str(ROOT / "kernel-helper/abi2py.py"), str(HEADER), "-"]
    text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    committed = (ROOT / "daemon/gangd/bpf/abi.py").read_text()
    assert committed == text, STALE


def test_every_struct_of_the_header_is_mirrored_and_its_size_asserted() -> None:
    text = HEADER.read_text()
    structs = [line.split()[1] for line in text.splitlines() if line.startswith("struct ") and "{" in line]
    assert structs == [c_name(record) for record in RECORDS]
    assert [name for name in structs if f"GANG_ASSERT_SIZE({name}," not in text] == []


def test_version_is_the_headers() -> None:
    assert f"#define GANG_ABI_VERSION {abi.ABI_VERSION}\n" in HEADER.read_text()


def test_the_counters_are_those_of_the_header() -> None:
    """Their module and their rows of docs/metrics.md are as the header has them."""
    assert counters.MODULE.read_text() == counters.module(), "run `make counters`"
    text = counters.PAGE.read_text()
    assert counters.page(text) == text, "run `make counters`"
    assert set(counters.fields("gang_stats")) == {field.name for field in fields(GangStats)}
    assert counters.fields("gang_stats")["run_seconds"].startswith("CPU time")
