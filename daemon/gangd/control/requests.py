# SPDX-License-Identifier: Apache-2.0
"""The D-Bus methods, without D-Bus: each checks its arguments, asks the Service and
answers with JSON text. `gangd.control.server` puts them on the bus.

Callers are untrusted. A value is checked for type, size and content before the
Service sees it, and every failure leaves as a GangError: any other exception is
logged here in full, and the caller gets one neutral sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from gangd.control import advice, choices, documents, structs
from gangd.control.options import Variants, affect, domain_ref, mark_change, options, quoted
from gangd.control.service import Service
from gangd.control.since import since
from gangd.control.smt import smt
from gangd.errors import GangError, InvalidArgument
from gangd.model.domain import Domain

log = logging.getLogger(__name__)

MARK = ("policy", "weight", "config", "live")
T = TypeVar("T")
NEUTRAL = "gangd failed inside; its log says more (journalctl -u gangd)"


class Requests:
    """The answers to every method of org.gangd.Gangd1."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def mark(self, ref: str, given: Variants) -> str:
        """Mark a domain; options policy (s), weight (u), config and live (b), as D-Bus variants."""

        async def work() -> structs.Whole:
            change = mark_change(options(given, *MARK))
            domain = await self.service.mark(domain_ref(ref), change)
            return documents.dominfo(self.service.snapshot(), domain)

        return await self._about_domains(f"failed to mark domain {quoted(ref)}", work)

    async def set(self, ref: str, given: Variants) -> str:
        """Change what is given of a domain's mark; options as for mark."""

        async def work() -> structs.Whole:
            change = mark_change(options(given, *MARK))
            if change.empty:
                raise InvalidArgument("nothing to change: neither policy nor weight was given")
            domain = await self.service.change(domain_ref(ref), change)
            return documents.dominfo(self.service.snapshot(), domain)

        return await self._about_domains(f"failed to change the mark of domain {quoted(ref)}", work)

    async def unmark(self, ref: str, given: Variants) -> str:
        """Take a domain's mark away; options config and live (b)."""

        async def work() -> structs.Whole:
            checked = options(given, "config", "live")
            domain = await self.service.unmark(domain_ref(ref), affect(checked))
            return documents.dominfo(self.service.snapshot(), domain)

        return await self._about_domains(f"failed to unmark domain {quoted(ref)}", work)

    async def undo(self, ref: str, given: Variants) -> str:
        """Put back what was changed of one domain and leave it alone; "" with `all` (b) = of everything."""

        async def work() -> structs.Whole:
            done = await self.service.undo(_one_or_all(ref, given))
            return documents.undone(self.service.snapshot(), done.domains, done.settings, done.failures)

        return await self._about_domains(f"failed to undo {_one_or_all_quoted(ref)}", work)

    async def resume(self, ref: str, given: Variants) -> str:
        """Schedule again what `undo` left alone; "" with `all` (b) = all of it."""

        async def work() -> structs.Whole:
            resumed = await self.service.resume(_one_or_all(ref, given))
            return documents.undone(self.service.snapshot(), resumed, 0, ())

        return await self._about_domains(f"failed to resume {_one_or_all_quoted(ref)}", work)

    async def list(self, all: bool) -> str:
        """Running domains, or all of them."""

        async def work() -> structs.Whole:
            return documents.domains(await self.service.measured(), all)

        return await self._about_domains("failed to list domains", work)

    async def domain_info(self, ref: str) -> str:
        """Return one domain in full."""

        async def work() -> structs.Whole:
            return documents.dominfo(await self.service.measured(), self._resolve(ref))

        return await self._about_domains(f"failed to show domain {quoted(ref)}", work)

    async def vcpu_info(self, ref: str) -> str:
        """The vCPUs of one domain."""

        async def work() -> structs.Whole:
            return documents.vcpuinfo(await self.service.measured(), self._resolve(ref))

        return await self._about_domains(f"failed to show the vCPUs of domain {quoted(ref)}", work)

    async def topology(self) -> str:
        """The host's CPUs and who is placed where."""

        async def work() -> structs.Whole:
            return documents.topology(self.service.snapshot())

        return await self._about_domains("failed to show the topology", work)

    async def plan(self, ref: str) -> str:
        """The plan, its reasons and the changes still to be made; "" = for the whole host."""

        async def work() -> structs.Whole:
            domain = self._resolve(ref) if ref else None
            plan, changes = await self.service.preview(domain.uuid if domain else None)
            return documents.plan(replace(self.service.snapshot(), plan=plan), changes, domain)

        about = f" for domain {quoted(ref)}" if ref else ""
        return await self._about_domains(f"failed to plan{about}", work)

    async def stats(self, ref: str) -> str:
        """Counters of one domain; "" = of all running ones."""

        async def work() -> structs.Whole:
            uuid = self._resolve(ref).uuid if ref else None
            return documents.stats(await self.service.measured(), uuid)

        about = f" of domain {quoted(ref)}" if ref else ""
        return await self._about_domains(f"failed to read the counters{about}", work)

    async def since(self, ref: str) -> str:
        """Compare a domain before its mark with since then."""

        async def work() -> structs.Whole:
            snapshot, domain = await self.service.measured(), self._resolve(ref)
            return since(snapshot, domain, self.service.reading(domain))

        return await self._about_domains(f"failed to compare domain {quoted(ref)} with before its mark", work)

    async def advise(self, ref: str) -> str:
        """Say whether a running domain would gain from a mark; "" = all running ones."""

        async def work() -> structs.Whole:
            uuid = self._resolve(ref).uuid if ref else None
            found = await self.service.advise(uuid)
            return advice.advise(self.service.snapshot(), found, uuid)

        about = f" on domain {quoted(ref)}" if ref else ""
        return await self._about_domains(f"failed to advise{about}", work)

    async def status(self) -> str:
        """Which parts of gangd work."""

        async def work() -> structs.Whole:
            return documents.status(self.service.snapshot())

        return await _answer("failed to show the status", work)

    async def policies(self) -> str:
        """The installed policies."""

        async def work() -> structs.Whole:
            return documents.policies(self.service.snapshot(), self.service.policies())

        return await _answer("failed to list the policies", work)

    async def profiles(self) -> str:
        """Profiles and selectors."""

        async def work() -> structs.Whole:
            return choices.profiles(self.service.snapshot(), self.service.rules())

        return await _answer("failed to list the profiles", work)

    async def smt(self) -> str:
        """SMT of the host."""

        async def work() -> structs.Whole:
            return smt(await self.service.smt(None))

        return await _answer("failed to show SMT", work)

    async def set_smt(self, wanted: str, given: Variants) -> str:
        """Switch it "on" or "off"."""

        async def work() -> structs.Whole:
            options(given)
            if wanted not in ("on", "off"):
                raise InvalidArgument(f"SMT can be switched on or off, not {quoted(wanted)}")
            return smt(await self.service.smt(wanted))

        return await _answer("failed to switch SMT", work)

    async def metrics(self, openmetrics: bool) -> tuple[str, str]:
        """Content type and text of /metrics."""
        content_type, text = await _guarded(
            "failed to show the metrics", lambda: self.service.metrics(openmetrics)
        )
        return content_type, text.replace("\0", "?")  # D-Bus carries none

    async def overview(self) -> str:
        """The page of the host and its guests; what D-Bus cannot carry is escaped in it."""
        return await _guarded("failed to show the guests", self.service.overview)

    async def refresh(self) -> None:
        """Read libvirt and the kernel now."""

        await self.service.asked()
        await _guarded("failed to refresh", self.service.refresh)

    async def _about_domains(self, action: str, work: Callable[[], Awaitable[structs.Whole]]) -> str:
        """Once it is known which domains there are: the first request may be what started gangd."""
        await self.service.asked()
        return await _answer(action, work)

    def _resolve(self, ref: str) -> Domain:
        return self.service.resolve(domain_ref(ref))


async def _answer(action: str, work: Callable[[], Awaitable[structs.Whole]]) -> str:
    """The document as JSON text; every failure as a GangError that names `action`."""

    async def text() -> str:
        return structs.text(await work())

    return await _guarded(action, text)


async def _guarded(action: str, work: Callable[[], Awaitable[T]]) -> T:
    """The answer of `work`; every failure is raised as a GangError that names `action`."""
    try:
        return await work()
    except GangError as error:
        raise error.during(action)
    except Exception:
        log.exception("%s", action)
        raise GangError(NEUTRAL, action) from None


def _one_or_all(ref: str, given: Variants) -> str | None:
    """The domain that was named, None for all: never because a script had an empty variable."""
    if bool(options(given, "all").get("all")) == bool(ref):
        raise InvalidArgument("specify either a domain or the option all")
    return domain_ref(ref) if ref else None


def _one_or_all_quoted(ref: str) -> str:
    return f"domain {quoted(ref)}" if ref else "all domains"
