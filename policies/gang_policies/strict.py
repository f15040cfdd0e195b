# SPDX-License-Identifier: Apache-2.0
"""strict: co-start in turns on whole cores, and nobody else on those cores, whoever of the gang halts.

For guests that should not share a core with another; it costs what halted members would have left to others.
It is not a security boundary: while a core changes hands a guest that has to go is still on it for as long as
an interrupt and a switch take, and at most one handover in a hundred may be early
(gangd_scheduler_core_shared_total of gangd_scheduler_core_waits_total). Needs the sched_ext scheduler, and a
kernel whose CPUs it may kick.
"""

from gang_policies.marked import Marked
from gangd.model.domain import Mode

POLICY = Marked("strict", Mode.STRICT, to="run with")
