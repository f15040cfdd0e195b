# SPDX-License-Identifier: Apache-2.0
"""The mark in a domain's metadata: in its live state, its configuration, or both. Blocking.

A running domain has both, and libvirt keeps them apart: the live one ends with the guest, the
configured one counts from its next start. Which is meant is said as virsh says it (Affect). A guest that
was saved (`virsh managedsave`) starts next by the definition in its image, so the configuration is both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libvirt

from gangd import virt
from gangd.errors import InvalidArgument, NotMarked, NotRunning, VerifyFailed
from gangd.model.affect import Affect
from gangd.model.domain import NAMESPACE, Mark
from gangd.model.mark import format_mark, parse_mark
from gangd.model.saved_mark import mark_in, with_mark

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
SAVED = -1  # beside libvirt's flags
_KEY = "gangd"
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_WHERE = {LIVE: "while it runs", CONFIG: "in its configuration", SAVED: "in its saved image"}


def write_mark(dom: Any, text: str | None, affect: Affect | None) -> None:
    """Store a mark (format_mark), None takes it away, also where there is none.

    Raises NoSuchDomain, NotRunning, InvalidArgument, AccessDenied, NoLibvirt.
    """
    try:
        targets = _targets(dom, affect)
        if SAVED in targets:  # first: it may be refused, and then nothing is written
            _write(dom, text, SAVED)
        _write(dom, text, sum(flag for flag in targets if flag != SAVED))
    except libvirt.libvirtError as error:
        raise virt.translate(error)


def change_mark(dom: Any, change: Callable[[Mark], Mark], affect: Affect | None) -> None:
    """Replace each mark that is meant by what `change` makes of it.

    Raises NotMarked where one that was named is not there, or none at all is; InvalidMark for one that
    cannot be understood; and as write_mark() does. Nothing is written before every mark was read.
    """
    try:
        marks = {flag: _read(dom, flag) for flag in _targets(dom, affect)}
        missing = [flag for flag, mark in marks.items() if mark is None]
        if len(missing) == len(marks) or (missing and affect is not None):
            where = f" {_WHERE[missing[0]]}" if affect is not None else ""
            raise NotMarked(f"domain is not marked{where} (gangctl mark)")
        texts = {flag: format_mark(change(mark)) for flag, mark in marks.items() if mark}
        for flag, text in sorted(texts.items()):
            _write(dom, text, flag)
    except libvirt.libvirtError as error:
        raise virt.translate(error)


def _targets(dom: Any, affect: Affect | None) -> list[int]:
    """The states that are meant, of those the domain has. Raises NotRunning, InvalidArgument."""
    running, persistent = bool(dom.isActive()), bool(dom.isPersistent())
    config = [CONFIG] * persistent + [SAVED] * (not running and _is_saved(dom))
    if affect is None:
        return [LIVE] * running + config
    if not affect.live and not affect.config:
        return [LIVE] if running else config
    if affect.live and not running:
        raise NotRunning("domain is not running")
    if affect.config and not persistent:
        raise InvalidArgument("transient domains do not have any persistent config")
    return [LIVE] * affect.live + config * affect.config


def _is_saved(dom: Any) -> bool:
    try:
        return bool(dom.hasManagedSaveImage(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            return False
        raise


def _read(dom: Any, flag: int) -> Mark | None:
    try:
        if flag == SAVED:
            text = mark_in(dom.managedSaveGetXMLDesc(0))
            return None if text is None else parse_mark(text)
        return parse_mark(dom.metadata(_ELEMENT, NAMESPACE, flag))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        raise


def _write(dom: Any, text: str | None, flags: int) -> None:
    if flags == SAVED:
        _write_saved(dom, text)
        return
    try:
        dom.setMetadata(_ELEMENT, text, None if text is None else _KEY, NAMESPACE, flags)
    except libvirt.libvirtError as error:
        if text is None and error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return
        raise


def _write_saved(dom: Any, text: str | None) -> None:
    """Raises VerifyFailed where libvirt kept another mark than it was given."""
    before = dom.managedSaveGetXMLDesc(libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)  # its passwords stay
    dom.managedSaveDefineXML(with_mark(before, text), 0)
    if _read(dom, SAVED) != (None if text is None else parse_mark(text)):
        raise VerifyFailed("libvirt keeps another mark in the saved image than it was given")
