# SPDX-License-Identifier: Apache-2.0
"""The mark of a domain as text: one element in the domain's own metadata.

    <gang xmlns="urn:gangd:domain:1" policy="relaxed" weight="200" tag="batch"/>

libvirt hands the element back with or without its prefix and namespace
(`virsh metadata` strips both). Whoever may edit a domain may write anything
there, so this is a reader of hostile text: small, without DTD, entities,
comments or processing instructions, and strict about everything else.
"""

from __future__ import annotations

import re
from typing import NoReturn
from xml.etree import ElementTree

from gangd.errors import InvalidMark
from gangd.model.domain import NAMESPACE, Mark

SIZE_MAX = 4096
WEIGHT_MIN, WEIGHT_MAX = 1, 10000
_POLICY = re.compile(r"[a-z][a-z0-9-]{0,31}")
_WEIGHT = re.compile(r"[1-9][0-9]{0,4}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAMES = ("gang", f"{{{NAMESPACE}}}gang")


def parse_mark(xml_text: str) -> Mark:
    """The mark that a metadata element stands for.

    Raises InvalidMark, with one sentence that says what is wrong; nothing else.
    """
    element = _element(xml_text)
    if element.tag not in _NAMES:
        _refuse(f"element {_shown(element.tag)} is not <gang> in namespace {NAMESPACE}")
    for child in element:
        _refuse(f"unknown element {_shown(child.tag)} in <gang>")
    if (element.text or "").strip():
        _refuse("unexpected text in <gang>")
    for name in element.attrib:
        if name not in ("policy", "weight", "tag"):
            _refuse(f"unknown attribute {_shown(name)}")
    policy, weight, tag = (element.get(name) for name in ("policy", "weight", "tag"))
    return Mark(
        None if policy is None else _policy(policy),
        None if weight is None else _weight(weight),
        None if tag is None else _tag(tag),
    )


def format_mark(mark: Mark) -> str:
    """The element that `parse_mark` reads back as `mark`. Raises InvalidMark.

    It carries no namespace: libvirt adds key and namespace when it stores the
    element (virDomainSetMetadata), and adding them twice would nest prefixes.
    """
    found = [
        None if mark.policy is None else f'policy="{_policy(mark.policy)}"',
        None if mark.weight is None else f'weight="{_weight(str(mark.weight))}"',
        None if mark.tag is None else f'tag="{_tag(mark.tag)}"',
    ]
    return f"<{' '.join(['gang', *filter(None, found)])}/>"


def _element(text: str) -> ElementTree.Element:
    """Parse what cannot expand: every construct that starts with <! or <? is refused unread."""
    # Compared in characters first: encoding a hostile megabyte costs more than refusing it.
    if len(text) > SIZE_MAX or len(text.encode(errors="replace")) > SIZE_MAX:
        _refuse(f"the element is longer than {SIZE_MAX} bytes")
    if "<!" in text or "<?" in text:
        _refuse("declarations, comments and processing instructions are not allowed")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        _refuse(f"not well-formed XML: {error}")
    except ValueError:  # lone surrogates cannot be encoded for expat
        _refuse("not well-formed XML: the text is not Unicode")


def _policy(name: str) -> str:
    if not _POLICY.fullmatch(name):
        _refuse(f"policy {_shown(name)} is not a policy name (a-z, 0-9 and -, at most 32 characters)")
    return name


def _weight(text: str) -> int:
    if not _WEIGHT.fullmatch(text) or int(text) > WEIGHT_MAX:
        _refuse(f"weight {_shown(text)} is not a whole number from {WEIGHT_MIN} to {WEIGHT_MAX}")
    return int(text)


def _tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        _refuse(f"tag {_shown(text)} is not a word of letters, digits, '.', '_' and '-', at most 64")
    return text


def _shown(text: object) -> str:
    """Hostile text, quoted and shortened for a message."""
    plain = str(text)
    return ascii(plain if len(plain) <= 60 else plain[:60] + "...")


def _refuse(what: str) -> NoReturn:
    raise InvalidMark(f"invalid gang metadata: {what}")
