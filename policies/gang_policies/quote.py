# SPDX-License-Identifier: Apache-2.0
"""What policies say of the evidence, in words."""

from __future__ import annotations

from gangd.model.evidence import Evidence


def measured(evidence: Evidence) -> str:
    """PAUSE exits and how many of them are lock-holder preemption; unknown is said to be so."""
    if evidence.pause_per_second is None:
        return "PAUSE exits not measured here"
    lhp = evidence.lhp_per_second or 0.0
    return f"{evidence.pause_per_second:.0f} PAUSE exits/s, {lhp:.0f} of them lock-holder preemption"
