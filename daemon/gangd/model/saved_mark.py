# SPDX-License-Identifier: Apache-2.0
"""The mark in the definition of a saved image, which libvirt hands out and takes back as text alone. Pure.

A definition holds text of strangers (metadata, a title), which may look like a mark, and whatever it holds
must survive. So the parser only tells where elements are, and they are cut out of a text that nobody
writes anew. The parser expands no entity: a document type, without which there is none to expand, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn
from xml.parsers import expat

from gangd.errors import GangError
from gangd.model.domain import NAMESPACE

_METADATA = ("domain", "metadata")
_BETWEEN = " "  # of namespace and name, as the parser reports them


@dataclass(frozen=True)
class _Element:
    """data[start:end] is an element; `inner` is where its end tag begins, `end` where it has none."""

    path: tuple[str, ...]
    start: int
    inner: int
    end: int

    @property
    def is_mark(self) -> bool:
        """libvirt finds metadata by its namespace, whatever the element is called."""
        return self.path[:-1] == _METADATA and self.path[-1].startswith(NAMESPACE + _BETWEEN)


def mark_in(definition: str) -> str | None:
    """The mark in a domain's definition as parse_mark() reads it, None where there is none.

    Raises GangError.
    """
    data = _bytes(definition)
    return next((data[e.start : e.end].decode() for e in _elements(data) if e.is_mark), None)


def with_mark(definition: str, mark: str | None) -> str:
    """The definition with this mark (format_mark()) in place of its own; None: with none.

    Raises GangError.
    """
    data = _bytes(definition)
    for old in sorted((e for e in _elements(data) if e.is_mark), key=lambda e: e.start, reverse=True):
        data = data[: old.start] + data[old.end :]
    if mark is None:
        return data.decode()
    element = f'<gangd:gang xmlns:gangd="{NAMESPACE}"{mark.removeprefix("<gang")}'.encode()
    place = {one.path: one for one in reversed(_elements(data))}
    if _METADATA[:1] not in place:
        _refuse("it is no domain")
    where = place.get(_METADATA)
    if where and where.inner < where.end:
        return (data[: where.inner] + element + data[where.inner :]).decode()
    element = b"<metadata>" + element + b"</metadata>"
    start, end = (where.start, where.end) if where else (place[_METADATA[:1]].inner,) * 2  # <metadata/>
    return (data[:start] + element + data[end:]).decode()


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        _refuse("it is not Unicode")


def _elements(data: bytes) -> list[_Element]:
    """The domain, its metadata, and what is in that, inner ones first."""
    found: list[_Element] = []
    path: list[str] = []
    starts: list[int] = []
    parser = expat.ParserCreate("utf-8", _BETWEEN)

    def begin(name: str, _attributes: dict[str, str]) -> None:
        path.append(name)
        starts.append(parser.CurrentByteIndex)

    def end(_name: str) -> None:
        start, index = starts.pop(), parser.CurrentByteIndex
        if tuple(path[:2]) == _METADATA[: len(path)] and len(path) <= 3:
            found.append(_Element(tuple(path), start, index, _end(data, start, index)))
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


def _end(data: bytes, start: int, index: int) -> int:
    """Behind an element that begins at `start` and whose end expat reports at `index`: behind <a/>, but
    before the </a> of <a></a>. What follows <a/> may be the end of its parent, which has another name."""
    name = re.compile(rb"<([^\s/>]+)").match(data, start)
    closing = re.compile(rb"</" + re.escape(name[1]) + rb"\s*>").match(data, index) if name else None
    return index if closing is None else closing.end()


def _refuse(why: str) -> NoReturn:
    raise GangError(f"cannot parse it: {why}")
