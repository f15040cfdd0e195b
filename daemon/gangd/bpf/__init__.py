# SPDX-License-Identifier: Apache-2.0
"""BPF objects: what gangd knows of libbpf.

    with Object(object_path("lhp")) as lhp:
        lhp.load()
        with lhp.attach("on_switch"):
            print(lhp.map("vcpus").items())

The names below come from the C extension gangd.bpf._core, documented in _core.pyi. It is
imported when one of them is first used: gangd.bpf.abi works without it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangd.bpf._core import (
        F_EXIST,
        F_LOCK,
        F_NOEXIST,
        BpfError,
        Link,
        Map,
        Object,
        detach_link,
        kernel_enum_value,
        kernel_func_names,
        kernel_func_params,
        kernel_has_type,
        kernel_struct_members,
        libbpf_version,
        possible_cpus,
        wait_for_readers,
    )

__all__ = [
    "F_EXIST",
    "F_LOCK",
    "F_NOEXIST",
    "BpfError",
    "Link",
    "Map",
    "Object",
    "detach_link",
    "kernel_enum_value",
    "kernel_func_names",
    "kernel_func_params",
    "kernel_has_type",
    "kernel_struct_members",
    "libbpf_version",
    "object_path",
    "possible_cpus",
    "wait_for_readers",
]


def object_path(name: str) -> Path:
    """Return where the compiled kernel-helper/bpf/NAME.bpf.c is installed; FileNotFoundError if it is not."""
    path = Path(__file__).parent / "objects" / f"{name}.bpf.o"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build it with `python3 setup.py build_ext --inplace`")
    return path


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gangd.bpf import _core

    return getattr(_core, name)
