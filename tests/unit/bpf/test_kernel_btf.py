# SPDX-License-Identifier: Apache-2.0
"""Questions about the running kernel, checked against bpftool's reading of the same BTF."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangd import bpf

VMLINUX = Path("/sys/kernel/btf/vmlinux")

pytestmark = pytest.mark.skipif(not VMLINUX.exists(), reason="this kernel has no BTF")
pytest.importorskip("gangd.bpf._core", reason="build it: python3 setup.py build_ext --inplace")


@pytest.fixture(scope="module")
def types() -> list[dict[str, Any]]:
    """Return the types that bpftool lists; types[id - 1] has that id."""
    bpftool = shutil.which("bpftool", path="/usr/sbin:/usr/bin")
    if not bpftool:
        pytest.skip("bpftool is not installed")
    dump = subprocess.run([bpftool, "-j", "btf", "dump", "file", VMLINUX], capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(dump.stdout)["types"]
    return found


def test_parameters_of_functions(types: list[dict[str, Any]]) -> None:
    functions = [btf for btf in types if btf["kind"] == "FUNC"]
    for function in functions[:: len(functions) // 50]:
        same = [btf for btf in functions if btf["name"] == function["name"]]
        counts = {len(types[btf["type_id"] - 1]["params"]) for btf in same}
        assert bpf.kernel_func_params(function["name"]) in counts
    assert bpf.kernel_func_params("schedule") == 0
    assert bpf.kernel_func_params("no_such_function") is None
    assert bpf.kernel_func_names("schedule") == []
    assert bpf.kernel_func_names("no_such_function") is None


def test_members_of_structs() -> None:
    members = bpf.kernel_struct_members("task_struct")
    assert members is not None
    assert {"pid", "tgid", "comm", "se"} <= set(members)
    page = bpf.kernel_struct_members("page")
    assert page is not None
    assert "lru" in page, "members of anonymous inner structs count"
    assert bpf.kernel_struct_members("no_such_struct") is None


def test_types_and_enumerators() -> None:
    assert bpf.kernel_has_type("task_struct")
    assert bpf.kernel_has_type("pid_t")
    assert not bpf.kernel_has_type("no_such_type")
    assert bpf.kernel_enum_value("bpf_map_type", "BPF_MAP_TYPE_HASH") == 1
    assert bpf.kernel_enum_value("bpf_map_type", "NO_SUCH_NAME") is None
    assert bpf.kernel_enum_value("no_such_enum", "BPF_MAP_TYPE_HASH") is None


def test_library_and_cpus() -> None:
    assert bpf.libbpf_version() >= (1, 4)
    possible = Path("/sys/devices/system/cpu/possible").read_text().strip()
    last = int(possible.replace("-", ",").split(",")[-1])
    assert bpf.possible_cpus() == last + 1
    nohz_full = Path("/sys/devices/system/cpu/nohz_full")
    found = nohz_full.read_text().strip() if nohz_full.exists() else ""
    assert bpf.wait_for_readers() is (found in ("", "(null)"))


def test_package_face(tmp_path: Path) -> None:
    assert set(bpf.__all__) <= {name for name in bpf.__all__ if hasattr(bpf, name)}
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = bpf.nope
    with pytest.raises(FileNotFoundError, match="build_ext --inplace"):
        bpf.object_path("no-such-object")
