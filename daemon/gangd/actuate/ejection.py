# SPDX-License-Identifier: Apache-2.0
"""Why the kernel threw the scheduler out, as people read it. Pure, but for the names of the kinds.

The record is written by the scheduler's own exit operation (dump.bpf.h) from
the kernel's struct scx_exit_info; the ring of decisions is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gangd.bpf import abi
from gangd.bpf.abi import GangDecisionKind as Kind

KINDS = {
    "SCX_EXIT_UNREG": "unregistered",
    "SCX_EXIT_UNREG_BPF": "bpf",
    "SCX_EXIT_UNREG_KERN": "kernel",
    "SCX_EXIT_SYSRQ": "sysrq",
    "SCX_EXIT_ERROR": "error",
    "SCX_EXIT_ERROR_BPF": "bpf_error",
    "SCX_EXIT_ERROR_STALL": "stall",
}
TEXTS = {Kind.TURN: "turn opened for gang {gang}"}


@dataclass(frozen=True)
class Ejection:
    """kind: a word for a label ("stall"); sentence: the kernel's own; report: lines for the log."""

    kind: str
    sentence: str
    report: tuple[str, ...] = ()


def ejection(
    record: abi.GangExitRecord, ring: abi.GangDecisions, number_of: Callable[[str], int | None]
) -> Ejection | None:
    """None while the scheduler is in. number_of: the kernel's value of an enumerator of scx_exit_kind."""
    if not record.kind:
        return None
    kind = next((word for name, word in KINDS.items() if number_of(name) == record.kind), "other")
    sentence = _text(record.message) or _text(record.reason) or f"exit kind {record.kind}"
    head = f"ejected: {kind} (exit kind {record.kind}, code {record.code}): {_text(record.reason)}"
    body = [head, *([sentence] if sentence != _text(record.reason) else []), "the last decisions:"]
    body += decisions(ring)
    return Ejection(kind, sentence, tuple(body + _text(record.dump).splitlines()))


def decisions(ring: abi.GangDecisions) -> list[str]:
    """Return a line for each decision, oldest first; times are relative to the last one."""
    found = [one for one in ring.last if one.kind]
    found.sort(key=lambda one: one.time)
    last = found[-1].time if found else 0
    return [f"  {(one.time - last) / 1e6:10.3f} ms  CPU {one.cpu}: {_decision(one)}" for one in found]


def _decision(one: abi.GangDecision) -> str:
    known = one.kind in [kind.value for kind in TEXTS]
    return TEXTS[Kind(one.kind)].format(gang=one.gang) if known else f"decision {one.kind}"


def _text(data: bytes) -> str:
    """Printable text: the kernel quotes names of tasks, which are a stranger's."""
    text = data.decode(errors="replace")
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text.replace("\t", "    ")).strip()
