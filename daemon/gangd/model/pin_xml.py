# SPDX-License-Identifier: Apache-2.0
"""The pins in a libvirt domain definition, and the same text without them.

A definition holds text of strangers (metadata, a title), which may look like pins, and whatever it holds
must survive. So the parser only tells where elements are, and they are cut out of a text that nobody
writes anew. The parser expands no entity: a document type, without which there is none to expand, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn
from xml.parsers import expat

from gangd.errors import GangError
from gangd.model.cpulist import format_cpulist, parse_cpulist

# Element -> the thread it pins, and its attribute with the thread's number.
_KINDS = {
    "vcpupin": ("vcpu", "vcpu"),
    "emulatorpin": ("emulator", None),
    "iothreadpin": ("iothread", "iothread"),
}
_VCPU = ("domain", "vcpu")
_CPUTUNE = ("domain", "cputune")
_EMPTY = re.compile(rb"<cputune\s*(/>|>\s*</cputune\s*>)")


@dataclass(frozen=True)
class Pin:
    """Where one thread may run. thread: vcpu, emulator or iothread; number: which one of them."""

    thread: str
    number: int | None
    cpus: frozenset[int]

    def element(self) -> str:
        """The pin as libvirt writes it."""
        name, attribute = next((n, a) for n, (thread, a) in _KINDS.items() if thread == self.thread)
        number = "" if attribute is None else f" {attribute}='{self.number}'"
        return f"<{name}{number} cpuset='{format_cpulist(self.cpus)}'/>"


@dataclass(frozen=True)
class _Element:
    """start, end: in bytes."""

    path: tuple[str, ...]
    attributes: dict[str, str]
    start: int
    end: int


def pins(text: str) -> list[Pin]:
    """The pins of a definition, in its order. Raises GangError for a text that is no definition."""
    return [_pin(element) for element in _elements(_bytes(text)) if _is_pin(element)]


def unpinned(text: str) -> frozenset[int]:
    """The CPUs of threads without a pin, none = all of the host: the cpuset of <vcpu>. Raises GangError."""
    found = (e.attributes.get("cpuset", "") for e in _elements(_bytes(text)) if e.path == _VCPU)
    return _cpus(next(found, ""))


def without_pins(text: str) -> str:
    """The definition without its pins, and without the <cputune> that had nothing else. Raises GangError."""
    data = _bytes(text)
    found = [element for element in _elements(data) if _is_pin(element)]
    if not found:
        return text
    data = _cut(data, found)
    tunes = [element for element in _elements(data) if element.path == _CPUTUNE]
    return _cut(data, [e for e in tunes if _EMPTY.fullmatch(data[e.start : e.end])]).decode()


def _is_pin(element: _Element) -> bool:
    return element.path[:-1] == _CPUTUNE and element.path[-1] in _KINDS


def _pin(element: _Element) -> Pin:
    thread, attribute = _KINDS[element.path[-1]]
    number = None if attribute is None else element.attributes.get(attribute, "")
    if number is not None and not (number.isascii() and number.isdecimal() and len(number) <= 9):
        _refuse(f"{number[:20]!a} is not the number of a thread")
    return Pin(thread, None if number is None else int(number), _cpus(element.attributes.get("cpuset", "")))


def _cpus(text: str) -> frozenset[int]:
    try:
        return parse_cpulist(text)
    except ValueError:
        _refuse(f"{text[:60]!a} is not a list of CPUs")


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        _refuse("it is not Unicode")


def _elements(data: bytes) -> list[_Element]:
    """Those elements of which this module knows the name and the place, ends first."""
    found: list[_Element] = []
    path: list[str] = []
    starts: list[tuple[int, dict[str, str]]] = []
    parser = expat.ParserCreate("utf-8")

    def begin(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        starts.append((parser.CurrentByteIndex, attributes))

    def end(name: str) -> None:
        start, attributes = starts.pop()
        if len(path) in (2, 3) and (tuple(path) in (_VCPU, _CPUTUNE) or tuple(path[:2]) == _CPUTUNE):
            stop = _end(data, parser.CurrentByteIndex, name)
            found.append(_Element(tuple(path), attributes, start, stop))
        path.pop()

    def doctype(*_declared: object) -> None:
        _refuse("a document type is not allowed")

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        _refuse(str(error))
    return found


def _end(data: bytes, index: int, name: str) -> int:
    """Behind an element whose end expat reports at `index`: behind <a/>, but before the </a> of <a></a>.

    What follows <a/> may be an end as well, but that of its parent, which has another name.
    """
    closing = re.compile(rb"</" + re.escape(name.encode()) + rb"\s*>").match(data, index)
    return index if closing is None else closing.end()


def _cut(data: bytes, elements: list[_Element]) -> bytes:
    """`data` without the elements; a line that had nothing else goes with them."""
    for element in sorted(elements, key=lambda e: e.start, reverse=True):
        before, after = data[: element.start], data[element.end :]
        bare = before.rstrip(b" \t")
        if bare.endswith(b"\n") and after.startswith(b"\n"):
            before, after = bare, after[1:]
        data = before + after
    return data


def _refuse(why: str) -> NoReturn:
    raise GangError(f"cannot parse it: {why}")
