# SPDX-License-Identifier: Apache-2.0
"""The base class of every struct of the kernel contract (abi.py)."""

import ctypes
from typing import Any, Self


class Record(ctypes.Structure):
    """A struct of the header. Assigning a number that does not fit raises OverflowError."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, int) and getattr(self, name) != value:
            raise OverflowError(f"{type(self).__name__}.{name}: {value} does not fit")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and bytes(self) == bytes(other)  # type: ignore[call-overload]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name, *_ in self._fields_)
        return f"{type(self).__name__}({fields})"

    def pack(self) -> bytes:
        """The bytes of a map key or value."""
        return bytes(self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """From the bytes of a map key or value; ValueError when the size is another."""
        if len(data) != ctypes.sizeof(cls):
            raise ValueError(f"{cls.__name__} is {ctypes.sizeof(cls)} bytes, not {len(data)}")
        return cls.from_buffer_copy(data)

    @classmethod
    def unpack_percpu(cls, data: bytes) -> list[Self]:
        """From the value of a per-CPU map: one record per possible CPU, in CPU order."""
        stride = (ctypes.sizeof(cls) + 7) // 8 * 8
        if not data or len(data) % stride:
            raise ValueError(f"{len(data)} bytes are no per-CPU array of {cls.__name__}")
        return [cls.from_buffer_copy(data, at) for at in range(0, len(data), stride)]
