/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cpu.max: the use of a group in a period is what its tasks ran, on all CPUs. If many CPUs at once
 * use more than the quota, the group pays for that in the periods that follow.
 */
#ifndef FAIR_QUOTA_BPF_H
#define FAIR_QUOTA_BPF_H

#include "state/lookup.bpf.h"

static u32 quotas;	  /* groups that have a quota */
static u32 quota_gen = 1; /* counts the changes of quotas */

/* Return true if group @id, or a group above it, has a quota. */
GLOBAL bool is_limited(u32 id)
{
	struct fair_group *own = group_of(id);
	u32 level, gen = quota_gen, found = 0;

	if (own->looked == gen)
		return own->limited;
	bpf_for(level, 0, DEPTH) {
		if (!id)
			break;
		found |= group_of(id)->quota != 0;
		id = group_of(id)->parent;
	}
	own->limited = found;
	own->looked = gen;
	return found;
}

static __always_inline bool limited(const struct fair_task *t)
{
	return quotas && t->group && is_limited(t->group);
}

/* Return the first group from @id upwards that has used up its quota; 0 if there is none. */
GLOBAL u32 spent_group(u32 id)
{
	u32 level;

	bpf_for(level, 0, DEPTH) {
		const struct fair_group *g = group_of(id);

		if (!id)
			break;
		if (g->quota && g->used >= g->quota)
			return id;
		id = g->parent;
	}
	return 0;
}

/* Return the ns that tasks of group @id may still use in this period. */
GLOBAL u64 quota_left(u32 id)
{
	u64 least = ~0ULL;
	u32 level;

	bpf_for(level, 0, DEPTH) {
		const struct fair_group *g = group_of(id);
		u64 used = g->used, left = g->quota > used ? g->quota - used : 0;

		if (!id)
			break;
		if (g->quota && left < least)
			least = left;
		id = g->parent;
	}
	return least;
}

/* Return the group with the cpu.max that keeps @t from running; 0 if there is none. */
static __always_inline u32 throttled_by(const struct fair_task *t)
{
	return limited(t) ? spent_group(t->group) : 0;
}

/* Make the period of group @id end @in ns from now. */
static void arm_period(u32 id, u64 in)
{
	struct fair_timer *timer = bpf_map_lookup_elem(&quota_timers, &id);

	if (timer)
		bpf_timer_start(&timer->timer, in, 0);
}

/* Charge group @id and the groups above it for @ns that a task ran. */
GLOBAL int use_quota(u32 id, u64 ns)
{
	u32 level;

	bpf_for(level, 0, DEPTH) {
		struct fair_group *g = group_of(id);

		if (!id)
			break;
		if (g->quota) {
			__sync_fetch_and_add(&g->used, ns);
			if (!*(volatile u32 *)&g->armed && !__sync_lock_test_and_set(&g->armed, 1))
				arm_period(id, g->period);
		}
		id = g->parent;
	}
	return 0;
}

/* Allow group @id @quota ns in each @period ns from now on; 0: no limit. */
static void set_quota(u32 id, u64 quota, u64 period)
{
	struct fair_group *g = group_of(id);
	u64 was = g->quota;

	if (!id || (!was && !quota))
		return;
	g->period = period;
	/* ticks of several CPUs may see the change at once: one CPU makes it */
	if (__sync_val_compare_and_swap(&g->quota, was, quota) != was)
		return;
	if (!was != !quota)
		__sync_fetch_and_add(&quotas, quota ? 1 : -1);
	g->limit = quota ? quota * FAIR_CPU / (period ? period : 1) : 0;
	__sync_fetch_and_add(&quota_gen, 1);
	/* tg_set_cfs_bandwidth() does the same: a new period begins, and all tasks are let go */
	g->used = 0;
	g->armed = 1;
	arm_period(id, 0);
}

#endif /* FAIR_QUOTA_BPF_H */
