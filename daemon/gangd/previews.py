# SPDX-License-Identifier: Apache-2.0
"""Plans that clients ask for and that gangd does not carry out.

Anybody may ask. So one is made at a time, and callers share one that has not begun: a reconcile waits for
one plan at most, however many ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, replace
from typing import Any

from gang_policies.adaptive import POLICY as ADAPTIVE
from gang_policies.adaptive import UNREAD, Memory
from gangd.control.service import Advice
from gangd.host_thread import Host
from gangd.loops import Following, Measuring, Reconciling
from gangd.model.domain import Domain, Mark
from gangd.model.plan import GangPlan, Plan, Refusal
from gangd.model.state import State

Preview = tuple[Plan, list[dict[str, str | None]]]
Planned = GangPlan | Refusal


class Previews:
    """The plan as it would be, and whether each guest would gain from a mark."""

    def __init__(
        self, host: Host, following: Following, measuring: Measuring, reconciling: Reconciling
    ) -> None:
        self._host, self._following = host, following
        self._measuring, self._reconciling = measuring, reconciling
        self._making = asyncio.Lock()
        self._to_make: dict[tuple[str, str | None], asyncio.Task[Any]] = {}  # by question: those not begun

    async def plan(self, domain: Domain | None) -> Preview:
        """The plan, as if `domain` were marked unless it was chosen, and what it would change now."""
        found: Preview = await self._shared("plan", domain, self._preview)
        return found

    async def advise(self, domain: Domain | None) -> Advice:
        """The plan for `domain`, or for each running guest, as if a mark named `adaptive`, from the last
        evidence."""
        found: Advice = await self._shared("advise", domain, self._advice)
        return found

    async def _shared(
        self, kind: str, domain: Domain | None, make: Callable[[str | None], Awaitable[object]]
    ) -> Any:
        uuid = domain.uuid if domain else None
        question = kind, uuid

        async def work() -> object:
            async with self._making:
                del self._to_make[question]
                return await make(uuid)

        if question not in self._to_make:
            self._to_make[question] = asyncio.create_task(work())
        return await asyncio.shield(self._to_make[question])

    async def _preview(self, uuid: str | None) -> Preview:
        async with self._reconciling.alone:
            plan = self._reconciling.planned(*self._as_if_marked(uuid))
            changes = await self._host.changes(plan)
        return plan, [asdict(change) for change in changes]

    def _as_if_marked(self, uuid: str | None) -> tuple[State, frozenset[str]]:
        """The state if a guest were marked unless it was chosen, and the guests to leave alone then."""
        state, undone, rules = self._following.state, self._following.undone, self._following.rules
        domain = state.domains.get(uuid) if uuid else None
        if domain is None:
            return state, undone
        if not rules.choice(domain):
            marked = replace(domain, mark=Mark(rules.default), mark_error=None)
            state = replace(state, domains={**state.domains, domain.uuid: marked})
        return state, undone - {domain.uuid}

    async def _advice(self, uuid: str | None) -> Advice:
        """Plan all guests together, and those that found no place again without the others, while some find
        one: a mark of its own is the question."""
        asked = set(self._following.state.domains) if uuid is None else {uuid}
        found = await self._planned(asked)
        again = {key for key, one in found.items() if isinstance(one, Refusal) and self._has_siblings(key)}
        while again and again != asked:
            asked = again
            found |= await self._planned(asked)
            again = {key for key in asked if isinstance(found[key], Refusal)}
        unread = frozenset(key for key, one in found.items() if _is_unread(one))
        return Advice(found, self._measuring.evidence, unread)

    async def _planned(self, uuids: Collection[str]) -> dict[str, Planned]:
        plan = await self._as_if_adaptive(uuids)
        found: list[Planned] = [*plan.gangs, *plan.refused]
        return {one.uuid: one for one in found if one.uuid in uuids}

    def _has_siblings(self, uuid: str) -> bool:
        domain = self._following.state.domains.get(uuid)
        return domain is not None and len(domain.vcpus) > 1

    async def _as_if_adaptive(self, uuids: Collection[str]) -> Plan:
        """The plan if marks of these guests named `adaptive`; one for which it was chosen stays as it is."""
        await asyncio.sleep(0)  # a large host has many: whoever else asks has a turn in between
        state, rules = self._following.state, self._following.rules
        marked = {
            uuid: replace(domain, mark=Mark(ADAPTIVE.name))
            for uuid, domain in state.domains.items()
            if uuid in uuids
            and domain.running
            and ((choice := rules.choice(domain)) is None or choice.policy != ADAPTIVE.name)
        }
        state = replace(state, domains={**state.domains, **marked})
        async with self._reconciling.alone:
            return self._reconciling.planned(state, self._following.undone)


def _is_unread(planned: Planned) -> bool:
    """True if the policy has too few readings of a guest to decide."""
    memory = getattr(planned, "memory", None)
    return isinstance(memory, Memory) and memory.why == UNREAD
