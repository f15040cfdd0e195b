# SPDX-License-Identifier: Apache-2.0
"""Make a call on D-Bus and return its answer, by libsystemd's sd-bus itself (sd-bus(3)).

sdbus imports asyncio and ssl, which would be two thirds of what a gangctl does. What a client
sends of org.gangd.Gangd1 is text, numbers and options; what comes back is text.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from contextlib import suppress
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from functools import cache

from gangd.control.names import chosen, where
from gangd.control.text import printable
from gangd.errors import InvalidArgument, NoDaemon

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE_SECONDS = 2.0
HEAR_SECONDS = 0.2  # Python handles no signal while libsystemd waits: a wait takes no longer than this
_VALUES = {"b": c_int, "u": c_uint32}  # sd_bus_message_append_basic(3): what it takes the address of


class CallFailed(Exception):
    """The answer was an error, or there was none. name: of the D-Bus error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.text = text


class _Error(ctypes.Structure):
    """sd_bus_error."""

    _fields_ = (("name", c_char_p), ("message", c_char_p), ("need_free", c_int))


# Result (None: void) and arguments; a result below 0 is an errno.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "sd_bus_open_system": (c_int, POINTER(c_void_p)),
    "sd_bus_open_user": (c_int, POINTER(c_void_p)),
    "sd_bus_new": (c_int, POINTER(c_void_p)),
    "sd_bus_set_address": (c_int, c_void_p, c_char_p),
    "sd_bus_set_bus_client": (c_int, c_void_p, c_int),
    "sd_bus_start": (c_int, c_void_p),
    "sd_bus_close_unref": (c_void_p, c_void_p),
    "sd_bus_send": (c_int, c_void_p, c_void_p, POINTER(c_uint64)),
    "sd_bus_process": (c_int, c_void_p, POINTER(c_void_p)),
    "sd_bus_wait": (c_int, c_void_p, c_uint64),
    "sd_bus_message_new_method_call": (c_int, c_void_p, POINTER(c_void_p), *[c_char_p] * 4),
    "sd_bus_message_set_auto_start": (c_int, c_void_p, c_int),
    "sd_bus_message_append_basic": (c_int, c_void_p, c_char, c_void_p),
    "sd_bus_message_open_container": (c_int, c_void_p, c_char, c_char_p),
    "sd_bus_message_close_container": (c_int, c_void_p),
    "sd_bus_message_get_signature": (c_char_p, c_void_p, c_int),
    "sd_bus_message_read_basic": (c_int, c_void_p, c_char, c_void_p),
    "sd_bus_message_unref": (c_void_p, c_void_p),
    "sd_bus_message_get_reply_cookie": (c_int, c_void_p, POINTER(c_uint64)),
    "sd_bus_message_get_error": (POINTER(_Error), c_void_p),
    "sd_bus_error_set_errno": (c_int, POINTER(_Error), c_int),
    "sd_bus_error_free": (None, POINTER(_Error)),
}


class Bus:
    """A connection. Raises InvalidArgument, NoDaemon when there is none to be had.

    autostart: the bus may start who is called and does not run. Ctrl-C ends a call at once; gangd may obey
    that call later. The next call on this connection is therefore sent after the answer to it, or after its
    timeout: gangd can obey two calls in either order.
    """

    def __init__(
        self, choice: str | None, autostart: bool = True, waits: Callable[[], None] | None = None
    ) -> None:
        self._autostart = autostart
        self._waits = waits  # to be called once, by a call that has no answer after PATIENCE_SECONDS
        self._bus = c_void_p()
        self._cookie = c_uint64()  # of the call that has no answer yet; 0: there is none
        self._due = 0.0  # time.monotonic() at which that call fails
        try:
            self._open(chosen(choice))
        except OSError as error:
            raise NoDaemon(f"no D-Bus {where(choice)}: {printable(str(error.strerror))}")

    def __del__(self) -> None:
        if self._bus:
            _library().sd_bus_close_unref(self._bus)

    def _open(self, choice: str) -> None:
        if choice == "system":
            _do("sd_bus_open_system", byref(self._bus))
        elif choice == "session":
            _do("sd_bus_open_user", byref(self._bus))
        else:
            _do("sd_bus_new", byref(self._bus))
            _do("sd_bus_set_address", self._bus, os.fsencode(choice))
            _do("sd_bus_set_bus_client", self._bus, 1)
            _do("sd_bus_start", self._bus)

    def call(
        self, target: tuple[str, str, str], method: str, signature: str, args: tuple[Any, ...], seconds: float
    ) -> Any:
        """The answer: None, its value, or a tuple of them. target: name, path and interface.

        Raises InvalidArgument for what cannot be sent, CallFailed, OSError.
        """
        request = c_void_p()
        name, path, interface = (word.encode() for word in target)
        _do(
            "sd_bus_message_new_method_call",
            self._bus,
            byref(request),
            name,
            path,
            interface,
            method.encode(),
        )
        try:
            _do("sd_bus_message_set_auto_start", request, self._autostart)
            _append(request, signature, args)
            self._settle()
            self._send(request, seconds)
            return self._answer()
        finally:
            _library().sd_bus_message_unref(request)

    def _settle(self) -> None:
        """Wait for the answer to a call that Ctrl-C ended."""
        if self._cookie.value:
            with suppress(CallFailed):
                self._answer()

    def _send(self, request: c_void_p, seconds: float) -> None:
        self._due = time.monotonic() + seconds
        code = _library().sd_bus_send(self._bus, request, byref(self._cookie))
        if code < 0:
            self._cookie.value = 0
            raise _failed(-code)

    def _answer(self) -> Any:
        """Return the contents of the answer to the call that was sent. Raises CallFailed, OSError."""
        asked = time.monotonic()
        try:
            while not (reply := self._received()):
                if self._waits and time.monotonic() > asked + PATIENCE_SECONDS:
                    self._waits()
                    self._waits = None
                left = self._due - time.monotonic()
                if left <= 0:
                    raise _failed(errno.ETIMEDOUT)
                self._wait(min(left, HEAR_SECONDS))
        except CallFailed:
            self._cookie.value = 0
            raise
        self._cookie.value = 0
        try:
            if error := _library().sd_bus_message_get_error(reply):
                raise CallFailed(_text(error.contents.name), _text(error.contents.message or b""))
            return _contents(reply)
        finally:
            _library().sd_bus_message_unref(reply)

    def _received(self) -> c_void_p | None:
        """Return the answer if it has come; drop what else has come."""
        code = 1
        while code > 0:
            message, cookie = c_void_p(), c_uint64()
            code = _library().sd_bus_process(self._bus, byref(message))
            if code < 0:
                raise _failed(-code)
            if not message:
                continue
            _library().sd_bus_message_get_reply_cookie(message, byref(cookie))
            if cookie.value == self._cookie.value:
                return message
            _library().sd_bus_message_unref(message)
        return None

    def _wait(self, seconds: float) -> None:
        code = _library().sd_bus_wait(self._bus, int(seconds * 1_000_000))
        if code < 0 and code != -errno.EINTR:
            raise _failed(-code)


def _failed(number: int) -> CallFailed:
    """Return the D-Bus error that libsystemd makes of an errno."""
    error = _Error()
    _library().sd_bus_error_set_errno(byref(error), number)
    try:
        return CallFailed(_text(error.name or b""), _text(error.message or b""))
    finally:
        _library().sd_bus_error_free(byref(error))


def _append(message: c_void_p, signature: str, args: tuple[Any, ...]) -> None:
    """Append arguments of the types that org.gangd.Gangd1 has: s, b, u, and a{sv} with those in it."""
    values = iter(args)
    for kind in signature.replace("a{sv}", "a"):
        value = next(values)
        try:
            if kind == "a":
                _append_options(message, value)
            else:
                _append_basic(message, kind, value)
        except (ValueError, TypeError, OSError) as error:  # broken UTF-8, or a number that does not fit
            raise InvalidArgument(f"D-Bus cannot carry this argument: {error}") from None


def _append_options(message: c_void_p, options: dict[str, tuple[str, Any]]) -> None:
    _do("sd_bus_message_open_container", message, b"a", b"{sv}")
    for name, (kind, value) in options.items():
        _do("sd_bus_message_open_container", message, b"e", b"sv")
        _append_basic(message, "s", name)
        _do("sd_bus_message_open_container", message, b"v", kind.encode())
        _append_basic(message, kind, value)
        _do("sd_bus_message_close_container", message)
        _do("sd_bus_message_close_container", message)
    _do("sd_bus_message_close_container", message)


def _append_basic(message: c_void_p, kind: str, value: Any) -> None:
    if kind == "s":
        text = value.encode()
        if b"\0" in text:  # it would be cut there without a word, and "web\0x" would name "web"
            raise ValueError("it holds a NUL")
        given: Any = c_char_p(text)
    else:
        held = _VALUES[kind](value)
        if held.value != value:  # ctypes cuts what does not fit
            raise ValueError(f"{value} does not fit")
        given = byref(held)
    _do("sd_bus_message_append_basic", message, kind.encode(), given)


def _contents(reply: c_void_p) -> Any:
    found = []
    for kind in (_library().sd_bus_message_get_signature(reply, 1) or b"").decode():
        if kind != "s":
            return None  # no document and no page: the caller says so
        text = c_char_p()
        _do("sd_bus_message_read_basic", reply, b"s", byref(text))
        found.append(_text(text.value or b""))
    return tuple(found) if len(found) > 1 else found[0] if found else None


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _do(function: str, *args: Any) -> None:
    code = getattr(_library(), function)(*args)
    if code < 0:
        raise OSError(-code, os.strerror(-code))


@cache
def _library() -> Any:
    library = ctypes.CDLL("libsystemd.so.0")
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
