# SPDX-License-Identifier: Apache-2.0
"""libcgroup, as far as gangd needs it: where each controller is, one value of one group.

The library knows v1, v2 and a host that has some of each; libcgroup.h. Through
ctypes, because Debian has no Python binding and eight functions need none. What is
mounted is looked at once, when the library is loaded (cgroup_init(3)).
"""

from __future__ import annotations

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_void_p

from gangd.errors import GangError

SONAMES = ("libcgroup.so.3", "libcgroup.so.2")  # Debian 13 and 12
MISSING = "libcgroup is not installed (Debian: libcgroup3, in Debian 12 libcgroup2)"
EMPTY, SYSTEM = 50023, 50016  # ECGEOF, ECGOTHER
VALUE_MAX = 4096
# Its own logger prints to stdout, and is what it takes where none was set.
_SILENT = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)(lambda *_: None)


class Libcgroup:
    """The library, loaded. Raises GangError when it is not there, or finds no cgroups."""

    def __init__(self) -> None:
        self._lib = _load()
        self._lib.cgroup_set_logger(_SILENT, 1, None)
        self._check(self._lib.cgroup_init(), "failed to look for cgroups")

    def version(self, controller: str) -> int | None:
        """1 or 2: which kind of cgroup has the controller; None when none has."""
        found = c_int()
        code = self._lib.cgroup_get_controller_version(controller.encode(), byref(found))
        return found.value if code == 0 and found.value in (1, 2) else None

    def get(self, controller: str, group: str, name: str) -> str:
        """The first line of a group's file `name`. Raises GangError, also when the group is gone."""
        handle, buffer = c_void_p(), ctypes.create_string_buffer(VALUE_MAX)
        place = (controller.encode(), os.fsencode(group), name.encode())
        ctypes.set_errno(0)
        code = self._lib.cgroup_read_value_begin(*place, byref(handle), buffer, VALUE_MAX)
        cause = ctypes.get_errno()
        if handle:
            self._lib.cgroup_read_value_end(byref(handle))
        if code != EMPTY:
            self._check(code, f"failed to read {name} of cgroup {group}", cause)
        return "" if code == EMPTY else buffer.value.decode(errors="replace").strip()

    def set(self, controller: str, group: str, name: str, value: str) -> None:
        """Write `value` to a group's file `name`. Raises GangError."""
        action = f"failed to set {name} of cgroup {group} to {value}"
        lib, pointer = self._lib, c_void_p(self._lib.cgroup_new_cgroup(os.fsencode(group)))
        if not pointer:
            raise GangError("libcgroup is out of memory", action)
        try:
            place = lib.cgroup_add_controller(pointer, controller.encode())
            if not place:
                raise GangError(f"the host has no {controller} cgroup controller", action)
            self._check(lib.cgroup_set_value_string(place, name.encode(), value.encode()), action)
            ctypes.set_errno(0)
            self._check(lib.cgroup_modify_cgroup(pointer), action, ctypes.get_errno())
        finally:
            lib.cgroup_free(byref(pointer))

    def _check(self, code: int, action: str, cause: int = 0) -> None:
        if code == SYSTEM and cause:
            raise GangError(os.strerror(cause), action)
        if code:
            text: bytes = self._lib.cgroup_strerror(code)
            raise GangError(f"libcgroup: {text.decode(errors='replace')}", action)


def _load() -> ctypes.CDLL:
    for soname in SONAMES:
        try:
            lib = ctypes.CDLL(soname, use_errno=True)
        except OSError:
            continue
        handle = POINTER(c_void_p)
        lib.cgroup_set_logger.argtypes = (type(_SILENT), c_int, c_void_p)
        lib.cgroup_set_logger.restype = None
        lib.cgroup_get_controller_version.argtypes = (c_char_p, POINTER(c_int))
        lib.cgroup_read_value_begin.argtypes = (c_char_p, c_char_p, c_char_p, handle, c_char_p, c_int)
        lib.cgroup_read_value_end.argtypes = (handle,)
        lib.cgroup_new_cgroup.argtypes = (c_char_p,)
        lib.cgroup_new_cgroup.restype = c_void_p
        lib.cgroup_add_controller.argtypes = (c_void_p, c_char_p)
        lib.cgroup_add_controller.restype = c_void_p
        lib.cgroup_set_value_string.argtypes = (c_void_p, c_char_p, c_char_p)
        lib.cgroup_modify_cgroup.argtypes = (c_void_p,)
        lib.cgroup_free.argtypes = (handle,)
        lib.cgroup_free.restype = None
        lib.cgroup_strerror.restype = c_char_p
        return lib
    raise GangError(MISSING)
