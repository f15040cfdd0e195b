/* SPDX-License-Identifier: GPL-2.0 */
/* An idle CPU takes a task that waits for another CPU, or in another cache. */
#ifndef PICK_STEAL_BPF_H
#define PICK_STEAL_BPF_H

#include "state/lookup.bpf.h"
#include "state/waiting.bpf.h"

/* Take a task that waits for another CPU or in another cache; return false if there is none. */
GLOBAL bool steal(u32 cpu)
{
	u32 own = cpu_of(cpu)->cache, i, k;

	if (strict_gangs)
		return false;
	bpf_for(i, 0, nr_cpus)
		if (*(volatile u32 *)&cpu_of(i)->has && scx_bpf_dsq_move_to_local(cpu_queue(i)))
			return true;
	bpf_for(i, 0, host.caches) {
		struct fair_cache *d = cache_of(i);
		u32 first = d->stolen; /* no gang comes first for ever */

		if (i == own || !waits_in(i))
			continue;
		if (scx_bpf_dsq_move_to_local(cache_queue(i)))
			return true;
		bpf_for(k, 0, d->gangs) {
			u32 gang = gang_at(d, (first + k) % d->gangs);

			if (scx_bpf_dsq_nr_queued(gang_queue(gang)) <= 0 ||
			    !scx_bpf_dsq_move_to_local(gang_queue(gang)))
				continue;
			d->stolen = first + k + 1;
			return true;
		}
	}
	return false;
}

#endif /* PICK_STEAL_BPF_H */
