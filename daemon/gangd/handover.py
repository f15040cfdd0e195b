# SPDX-License-Identifier: Apache-2.0
"""The plan that a gangd leaves to the one that systemd starts after it.

With it guests keep their places, and policies what they learned of them: without it, those under `adaptive`
would begin as no gangs. It lies beside the journal. A file that is not of this version's kind is no plan:
gangd begins anew then, as after a stop.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from gangd.model.plan import Cache, GangPlan, Plan
from gangd.model.policy import Policy

log = logging.getLogger("gangd")

NAME = "plan"


class Left(msgspec.Struct, frozen=True):
    """The parts of a plan that the next one builds on."""

    caches: tuple[Cache, ...]
    gangs: tuple[GangPlan, ...]


def leave(folder: Path, plan: Plan) -> None:
    """Write the plan in force. A policy's memory that is not made of plain values is left out. Raises
    OSError."""
    gangs = tuple(replace(gang, basis=None) for gang in plan.gangs)
    data = msgspec.msgpack.encode(Left(plan.caches, gangs), enc_hook=lambda _: None)
    (folder / NAME).write_bytes(data)


def forget(folder: Path) -> None:
    """Remove the plan that was left, since nobody takes it."""
    with contextlib.suppress(OSError):
        (folder / NAME).unlink()


def take(folder: Path, policies: Mapping[str, Policy]) -> Plan | None:
    """Return the plan that was left, and remove it; None: there is none that can be read."""
    file = folder / NAME
    try:
        data = file.read_bytes()
        file.unlink()
        left = msgspec.msgpack.decode(data, type=Left)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("cannot take up the plan of the gangd before, and begin anew: %s", error)
        return None
    return Plan(left.caches, tuple(replace(gang, memory=_memory(gang, policies)) for gang in left.gangs))


def _memory(gang: GangPlan, policies: Mapping[str, Policy]) -> object:
    """Return what the policy remembers of the gang; None if the policy does not say of what kind that is."""
    kind = getattr(policies.get(gang.policy), "remembers", None)
    if kind is None:
        return None
    try:
        return msgspec.convert(gang.memory, kind)
    except (msgspec.ValidationError, TypeError):
        return None
