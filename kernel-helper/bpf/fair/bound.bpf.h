/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that are bound to a CPU: they share a clock of their own, which is one party of the cache.
 */
#ifndef FAIR_BOUND_BPF_H
#define FAIR_BOUND_BPF_H

#include "fair/clock.bpf.h"

/* How far those bound to @cpu are ahead of its domain. */
static s64 bound_ahead(u32 cpu, u64 now)
{
	const struct fair_cpu *c = cpu_of(cpu);

	return fair_after(clock_at(BOUND_CLOCK | cpu, now) + c->offset, clock_at(c->domain, now));
}

/*
 * The bound of a CPU are one party of the domain: their clock is never further from the domain's
 * than a few turns of the lighter of the two.
 */
GLOBAL int level_bound(u32 cpu, u64 now, bool idle)
{
	struct fair_cpu *c = cpu_of(cpu);
	struct fair_clock *own = clock_of(BOUND_CLOCK | cpu), *all = clock_of(c->domain);
	s64 ahead = bound_ahead(cpu, now);
	u32 nr = *(volatile u32 *)&all->nr;
	u64 w = nr ? *(volatile u64 *)&all->w / nr : FAIR_ONE, own_w = *(volatile u64 *)&own->w;
	s64 most = fair_virtual(4 * TURN_MOST, own_w && own_w < w ? own_w : w);

	if (all->nr <= all->running) { /* nobody waits for what they have too much */
		if (ahead > 0)
			c->offset -= ahead;
	} else if (ahead > most) {
		c->offset -= ahead - most;
	}
	if (idle)
		most = 0;
	if (ahead < -most)
		c->offset += -most - ahead;
	return 0;
}

/*
 * A task of weight @w joins those bound to @cpu. What they owe together it does not make more, in
 * ns, however heavy it is: it ran none of that. What they are owed stays as it is, for a task that
 * comes and goes would take it from them bit by bit.
 */
GLOBAL int dilute_debt(u32 cpu, u64 w, u64 now)
{
	u64 own = *(volatile u64 *)&clock_of(BOUND_CLOCK | cpu)->w, all = own + w;
	s64 ahead = bound_ahead(cpu, now);

	if (ahead > 0)
		cpu_of(cpu)->offset -= ahead - (u64)ahead / (all ? all : 1) * own;
	return 0;
}

/* Beside its own clock @domain counts the tasks bound to its CPUs: @nr more of them, with @w. */
static __always_inline void note_bound(u32 clock, u32 domain, s32 nr, u64 w)
{
	struct fair_domain *d = domain_of(domain);

	if (!(clock & BOUND_CLOCK))
		return;
	if (nr)
		__sync_fetch_and_add(&d->bound_nr, nr);
	if (w)
		__sync_fetch_and_add(&d->bound_w, w);
}

#endif /* FAIR_BOUND_BPF_H */
