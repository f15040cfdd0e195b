/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that are bound to a CPU share a clock of their own. Together they are one party of the
 * cache.
 */
#ifndef FAIR_BOUND_BPF_H
#define FAIR_BOUND_BPF_H

#include "fair/clock.bpf.h"

/* Return how far the tasks bound to @cpu are ahead of its cache. */
static s64 bound_ahead(u32 cpu, u64 now)
{
	const struct fair_cpu *c = cpu_of(cpu);

	return fair_after(clock_at(BOUND_CLOCK | cpu, now) + c->offset, clock_at(c->cache, now));
}

/*
 * Keep the clock of the tasks bound to @cpu, which are one party of the cache, near the cache's
 * clock: never further away than a few turns of the lighter of the two. With @idle, no bound task
 * was runnable, and they are owed nothing.
 */
GLOBAL int level_bound(u32 cpu, u64 now, bool idle)
{
	struct fair_cpu *c = cpu_of(cpu);
	struct fair_clock *own = clock_of(BOUND_CLOCK | cpu), *all = clock_of(c->cache);
	s64 ahead = bound_ahead(cpu, now);
	u32 nr = *(volatile u32 *)&all->nr;
	u64 w = nr ? *(volatile u64 *)&all->w / nr : FAIR_ONE, own_w = *(volatile u64 *)&own->w;
	s64 most = fair_virtual(4 * TURN_MOST, own_w && own_w < w ? own_w : w);

	if (all->nr <= all->running) { /* no task waits for what they had too much */
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
 * Prepare the clock of the tasks bound to @cpu for a task of weight @w that joins them. The debt
 * that they owe together does not grow in ns, however heavy the task is: it ran none of that. What
 * they are owed stays as it is: otherwise a task that comes and goes would take it from them bit by
 * bit.
 */
GLOBAL int dilute_debt(u32 cpu, u64 w, u64 now)
{
	u64 own = *(volatile u64 *)&clock_of(BOUND_CLOCK | cpu)->w, all = own + w;
	s64 ahead = bound_ahead(cpu, now);

	if (ahead > 0)
		cpu_of(cpu)->offset -= ahead - (u64)ahead / (all ? all : 1) * own;
	return 0;
}

/*
 * Add @nr tasks and the weight @w to those that @cache counts beside its clock, if @clock is one
 * of bound tasks.
 */
static __always_inline void note_bound(u32 clock, u32 cache, s32 nr, u64 w)
{
	struct fair_cache *d = cache_of(cache);

	if (!(clock & BOUND_CLOCK))
		return;
	if (nr)
		__sync_fetch_and_add(&d->bound_nr, nr);
	if (w)
		__sync_fetch_and_add(&d->bound_w, w);
}

#endif /* FAIR_BOUND_BPF_H */
