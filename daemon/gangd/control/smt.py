# SPDX-License-Identifier: Apache-2.0
"""`gangctl smt` as a document. Pure; the rules are those of gangd.control.documents."""

from __future__ import annotations

from gangd.control import structs
from gangd.model.smt import Smt


def smt(state: Smt) -> structs.Smt:
    """The kernel's word, the threads of each core that are online, what an undo would write."""
    return structs.Smt(
        control=state.control,
        active=state.active,
        prior=state.prior,
        cores=[structs.Core(core=min(cpus), cpus=list(cpus)) for cpus in state.cores],
        offline=sorted(state.offline),
    )
