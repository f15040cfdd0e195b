# SPDX-License-Identifier: Apache-2.0
"""strict: co-start in the slot on whole cores, and nobody else on those cores, whoever of the gang halts.

For guests that must not share a core with another at any moment; it costs what halted members would
have left to others. Needs the sched_ext scheduler, and a kernel whose CPUs it may kick.
"""

from gang_policies.marked import Marked
from gangd.model.domain import Mode

POLICY = Marked("strict", Mode.STRICT, to="run with")
