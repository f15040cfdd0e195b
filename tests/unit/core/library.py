# SPDX-License-Identifier: Apache-2.0
"""C files of this folder as shared libraries, each compiled once a test run."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
HELPER = HERE.parents[2] / "kernel-helper"
FLAGS = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare")


@cache
def load(source: str) -> ctypes.CDLL:
    """Compile and open `source`. A compiler that is missing or unhappy is a failure."""
    includes = [f"-I{HELPER / part}" for part in ("core", "include", "module")]
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder, source).with_suffix(".so"))
        subprocess.run(["gcc", *FLAGS, *includes, str(HERE / source), "-o", library], check=True)
        return ctypes.CDLL(library)
