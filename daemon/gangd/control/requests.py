# SPDX-License-Identifier: Apache-2.0
"""What each D-Bus method does, without D-Bus: checks what a caller sent, asks the
Service, answers with JSON text. `gangd.control.server` puts it on the bus.

Callers are strangers. A value is checked for type, size and content before the
Service sees it, and every failure leaves as a GangError: what is not one is
logged here in full and told to the caller as one neutral sentence.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from gangd.control import documents
from gangd.control.service import Service
from gangd.control.text import shortened
from gangd.errors import GangError, InvalidArgument
from gangd.model.domain import Domain

log = logging.getLogger(__name__)

REF_MAX = 1024  # libvirt's names end as file names: 255 bytes; the rest is slack
POLICY_MAX = 128
WEIGHT_RANGE = range(1, 10001)  # cgroup v2 cpu.weight
NEUTRAL = "gangd failed inside; its log says more (journalctl -u gangd)"


class Requests:
    """The answers to every method of org.gangd.Gangd1."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def mark(self, ref: str, options: Mapping[str, tuple[str, Any]]) -> str:
        """Mark a domain; options policy (s) and weight (u), as D-Bus variants."""

        async def work() -> documents.Document:
            checked = _options(options)
            domain = await self.service.mark(_ref(ref), checked.get("policy"), checked.get("weight"))
            return documents.dominfo(self.service.snapshot(), domain)

        return await _answer(f"failed to mark domain {_quoted(ref)}", work)

    async def unmark(self, ref: str) -> str:
        """Take a domain's mark away."""

        async def work() -> documents.Document:
            domain = await self.service.unmark(_ref(ref))
            return documents.dominfo(self.service.snapshot(), domain)

        return await _answer(f"failed to unmark domain {_quoted(ref)}", work)

    async def list(self, all: bool) -> str:
        """Running domains, or all of them."""

        async def work() -> documents.Document:
            return documents.domains(await self.service.measured(), all)

        return await _answer("failed to list domains", work)

    async def domain_info(self, ref: str) -> str:
        """One domain in full."""

        async def work() -> documents.Document:
            return documents.dominfo(await self.service.measured(), self._resolve(ref))

        return await _answer(f"failed to show domain {_quoted(ref)}", work)

    async def vcpu_info(self, ref: str) -> str:
        """The vCPUs of one domain."""

        async def work() -> documents.Document:
            return documents.vcpuinfo(await self.service.measured(), self._resolve(ref))

        return await _answer(f"failed to show the vCPUs of domain {_quoted(ref)}", work)

    async def topology(self) -> str:
        """The host's CPUs and who is placed where."""

        async def work() -> documents.Document:
            return documents.topology(self.service.snapshot())

        return await _answer("failed to show the topology", work)

    async def plan(self, ref: str) -> str:
        """What is wanted, why, and what is still to be changed; "" = for the whole host."""

        async def work() -> documents.Document:
            domain = self._resolve(ref) if ref else None
            plan, changes = await self.service.preview(domain.uuid if domain else None)
            return documents.plan(replace(self.service.snapshot(), plan=plan), changes, domain)

        about = f" for domain {_quoted(ref)}" if ref else ""
        return await _answer(f"failed to plan{about}", work)

    async def stats(self, ref: str) -> str:
        """Counters of one domain; "" = of all running ones."""

        async def work() -> documents.Document:
            uuid = self._resolve(ref).uuid if ref else None
            return documents.stats(await self.service.measured(), uuid)

        about = f" of domain {_quoted(ref)}" if ref else ""
        return await _answer(f"failed to read the counters{about}", work)

    async def status(self) -> str:
        """Which parts of gangd work."""

        async def work() -> documents.Document:
            return documents.status(self.service.snapshot())

        return await _answer("failed to show the status", work)

    async def policies(self) -> str:
        """The installed policies."""

        async def work() -> documents.Document:
            return documents.policies(self.service.snapshot(), self.service.policies())

        return await _answer("failed to list the policies", work)

    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""

        async def work() -> documents.Document:
            await self.service.refresh()
            return {}

        await _answer("failed to refresh", work)

    def _resolve(self, ref: str) -> Domain:
        return self.service.resolve(_ref(ref))


async def _answer(action: str, work: Callable[[], Awaitable[documents.Document]]) -> str:
    """The document as JSON text; every failure as a GangError that names `action`."""
    try:
        # ASCII only: a name with a lone surrogate must not break the bus message.
        return json.dumps(await work(), allow_nan=False, separators=(",", ":"))
    except GangError as error:
        raise error.during(action)
    except Exception:
        log.exception("%s", action)
        raise GangError(NEUTRAL, action) from None


def _quoted(ref: object) -> str:
    return f"'{shortened(ref, 80)}'" if isinstance(ref, str) else "''"


def _ref(ref: object) -> str:
    return _text("domain", ref, REF_MAX)


def _text(what: str, value: object, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"{what} must be a name, not empty")
    if len(value) > limit:
        raise InvalidArgument(f"{what} is longer than {limit} characters")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidArgument(f"{what} is not text")
    return value


def _options(options: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The options of Mark by name. Unknown ones are refused rather than ignored:
    a caller who asks for something must not believe to have got it."""
    checked: dict[str, Any] = {}
    for key, (signature, value) in options.items():
        if key == "policy" and signature == "s":
            checked[key] = _text("policy", value, POLICY_MAX)
        elif key == "weight" and signature == "u":
            checked[key] = _weight(value)
        elif key in ("policy", "weight"):
            raise InvalidArgument(f"option {key} has D-Bus type {shortened(signature, 40)!r}")
        else:
            raise InvalidArgument(f"unknown option {_quoted(key)} (known: policy, weight)")
    return checked


def _weight(value: int) -> int:
    if value not in WEIGHT_RANGE:
        raise InvalidArgument(f"weight {value} is not in {WEIGHT_RANGE[0]} to {WEIGHT_RANGE[-1]}")
    return value
