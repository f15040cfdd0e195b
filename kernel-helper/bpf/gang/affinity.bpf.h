/* SPDX-License-Identifier: GPL-2.0 */
/* The caches in which a task, and therefore its gang, may run anywhere. */
#ifndef GANG_AFFINITY_BPF_H
#define GANG_AFFINITY_BPF_H

#include "state/allowed.bpf.h"

/* Return 1 if @p may run on every CPU of @cache. */
GLOBAL int has_room_in(struct task_struct *p __arg_trusted, u32 cache)
{
	const struct fair_cache *d = cache_of(cache);
	u32 i, lacks = 0;

	bpf_for(i, 0, d->cpus)
		lacks |= !allows(p, cpu_at(d, i));
	return !lacks;
}

/*
 * Look up the caches that @t may use, and whether it is bound. A task that may not run on some CPU
 * of its cache waits for the CPU where it is, among the tasks bound there: CPUs that the task may
 * not use could be the only ones that serve the queue of the cache.
 */
GLOBAL int update_mask(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		       u32 cache)
{
	struct fair_gang *g = gang_of(t->gang);
	u32 i, allowed = p->nr_cpus_allowed;

	if (t->allowed != allowed) {
		t->room = allowed < nr_cpus ? 0 : ~0ULL;
		t->allowed = allowed;
		if (!t->room)
			bpf_for(i, 0, host.caches)
				t->room |= (u64)has_room_in(p, i) << i;
	}
	t->bound = !(t->room >> cache & 1);
	if (t->gang && !g->wide) {
		if (g->room & ~t->room)
			g->room &= t->room;
		t->bound |= !(t->room >> g->cache & 1);
	}
	return 0;
}

#endif /* GANG_AFFINITY_BPF_H */
