# SPDX-License-Identifier: Apache-2.0
"""Domains that libvirt lists and does not describe, against its own test driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

import libvirt

from gangd import virt
from gangd.errors import GangError
from gangd.events import domain_reader
from gangd.events import libvirt as events
from gangd.model.domain import Domain
from gangd.model.event import Disconnected, DomainGone
from unit.events.test_libvirt import VM, Watch, follow, xml


class Refusing:
    """A domain whose driver fails at the first question, and at that for its mark; all else is the real
    one's."""

    def __init__(self, dom: Any, code: int) -> None:
        self._dom, self._code = dom, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dom, name)

    def info(self) -> Any:
        error = libvirt.libvirtError("failed")
        of_rpc = self._code == libvirt.VIR_ERR_RPC  # a message that is too long to be sent
        source = libvirt.VIR_FROM_RPC if of_rpc else libvirt.VIR_FROM_QEMU
        error.err = (self._code, source, "cannot acquire state change lock", 2, "", "", "", 0, 0)
        raise error

    def metadata(self, *_: Any) -> Any:
        return self.info()


@pytest.mark.parametrize("event", [False, True])
@pytest.mark.parametrize(
    "code",
    [
        libvirt.VIR_ERR_OPERATION_TIMEOUT,
        libvirt.VIR_ERR_ACCESS_DENIED,
        libvirt.VIR_ERR_OPERATION_INVALID,
        libvirt.VIR_ERR_RPC,
    ],
)
def test_a_domain_that_libvirt_does_not_describe_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, event: bool
) -> None:
    """The domain's known state stays, it is reported once, and libvirt is not lost, even if it is new."""
    caplog.set_level("INFO", "gangd")
    read, refusing = domain_reader.read_domain, [True]
    new = "22222222-2222-3333-4444-555555555555"

    def reads(dom: Any, root: Path) -> Domain:
        refused = refusing[0] and dom.name() != "test"
        return read(Refusing(dom, code) if refused else dom, root)

    async def again(watch: Watch) -> None:
        session = watch.source._session
        assert session is not None
        if event:
            for uuid in (VM, new):
                session.note(uuid)
            await watch.until(lambda: not session.dirty and not session.rereading)
        await watch.source.resync()

    async def body(watch: Watch) -> None:
        watch.conn.defineXML(xml())
        await watch.until(lambda: watch.get())
        monkeypatch.setattr(events, "read_domain", reads)
        watch.conn.defineXML(xml("new", new))
        watch.conn.lookupByName("vm").create()
        for _ in range(3):
            await again(watch)
        assert {d.name: d.running for d in watch.state.domains.values()} == {"test": True, "vm": False}
        assert watch.state.connected and len(watch.source.troubles) == 2
        assert "cannot read domain 'vm': cannot acquire state change lock" in watch.source.troubles
        refusing[0] = False
        await again(watch)
        assert {d.name for d in watch.state.domains.values()} == {"test", "vm", "new"}
        assert (vm := watch.get()) and vm.running and watch.source.troubles == ()
        assert not any(isinstance(one, Disconnected | DomainGone) for one in watch.seen)

    follow(body)
    said = [(one.levelname, one.__dict__["GANGD_UUID"]) for one in caplog.records]
    assert sorted(said) == [(level, uuid) for level in ("INFO", "WARNING") for uuid in (VM, new)]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (libvirt.VIR_ERR_NO_DOMAIN_METADATA, None),
        (libvirt.VIR_ERR_NO_SUPPORT, None),
        (libvirt.VIR_ERR_RPC, "libvirt does not send it: cannot acquire state change lock"),
    ],
)
def test_a_mark_that_libvirt_does_not_tell(code: int, error: str | None) -> None:
    """Most guests have none. One of many megabytes is a sentence about its guest."""
    assert domain_reader._mark(Refusing(None, code)) == (None, error)


def test_a_mark_that_libvirt_tells_later_is_not_gone() -> None:
    with pytest.raises(GangError, match="state change lock"):
        domain_reader._mark(Refusing(None, libvirt.VIR_ERR_OPERATION_TIMEOUT))


def test_a_lookup_that_fails_does_not_mean_gone() -> None:
    """A driver that fails is no answer to the question whether there is such a domain."""

    class Conn:
        def lookupByUUIDString(self, _uuid: str) -> Any:  # noqa: N802 - libvirt's name
            return Refusing(None, libvirt.VIR_ERR_INTERNAL_ERROR).info()

        lookupByName = lookupByUUIDString  # noqa: N815

    with pytest.raises(GangError, match="state change lock"):
        virt.lookup(Conn(), VM)
