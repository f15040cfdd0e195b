/* SPDX-License-Identifier: GPL-2.0 */
/* The control group of a task, with the weight and the limit that the kernel has for it. */
#ifndef FAIR_GROUP_BPF_H
#define FAIR_GROUP_BPF_H

#include "fair/quota.bpf.h"
#include "fair/weight.bpf.h"

#define SHARES_SHIFT 4 /* task_group.shares of weight 100 is 2^20 (NICE_0_LOAD), FAIR_ONE 2^16 */
#define BORROWED     (1U << 31) /* the number is that of the group above */

static u32 group_number(const struct cgroup *cgrp)
{
	u64 key = cgrp ? BPF_CORE_READ(cgrp, kn, id) : 0;
	u32 *id = key ? bpf_map_lookup_elem(&group_numbers, &key) : NULL;

	return id ? *id : 0;
}

/* Return the group that limits and weighs the tasks of @cgrp first. */
static u32 group_id(const struct cgroup *cgrp)
{
	return group_number(cgrp) & ~BORROWED;
}

/*
 * Move @t to the group that the kernel has for @p now. The kernel tells of a move by
 * ops.cgroup_move, but not of a move by a change of cgroup.subtree_control, for which it warns
 * where that operation is there (scx_cgroup_move_task(), kernel/sched/ext.c of 6.18 to 7.0). A task
 * that moves leaves its runqueue and comes back: the scheduler looks at its group then.
 */
GLOBAL int follow_group(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull)
{
	const struct task_group *tg;
	u32 id;

	if (!bpf_core_field_exists(p->sched_task_group))
		return 0;
	tg = p->sched_task_group;
	if ((u64)tg == t->task_group)
		return 0;
	t->task_group = (u64)tg;
	id = group_id(BPF_CORE_READ(tg, css.cgroup));
	if (id == t->group)
		return 0;
	if (t->on_rq)
		group_dequeue(t->group, t->counted);
	t->group = id;
	if (t->on_rq)
		group_enqueue(t, t->own);
	return 0;
}

static void set_weight(u32 id, u64 weight)
{
	struct fair_group *g = group_of(id);
	u64 counted = g->counted;

	if (!id || g->weight == weight)
		return;
	g->weight = weight;
	if (counted && __sync_val_compare_and_swap(&g->counted, counted, weight) == counted)
		__sync_fetch_and_add(&group_of(g->parent)->word, (weight - counted) << NR_BITS);
	__sync_fetch_and_add(&group_gen, 1);
}

/* Read cpu.max of group @id, which is @tg, on a kernel that does not tell of it. */
static void read_quota(u32 id, const struct task_group *tg)
{
	u64 quota = BPF_CORE_READ(tg, cfs_bandwidth.quota);
	u64 period = BPF_CORE_READ(tg, cfs_bandwidth.period);

	quota = quota == ~0ULL ? 0 : quota;
	if (quota != group_of(id)->quota || (quota && period != group_of(id)->period))
		set_quota(id, quota, period);
}

/*
 * Read cpu.weight and cpu.idle, which is a weight in the kernel, of all groups of @p, and cpu.max
 * where the kernel does not tell of it. Ticks call this, because 6.18 does not tell of cpu.idle.
 */
GLOBAL int read_groups(struct task_struct *p __arg_trusted)
{
	const struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	const struct task_group *tg;
	u32 id = t ? t->group : 0, level;

	if (!id || !bpf_core_field_exists(p->sched_task_group))
		return 0;
	tg = BPF_CORE_READ(p, sched_task_group);
	bpf_for(level, 0, DEPTH) {
		if (!id || !tg)
			break;
		set_weight(id, BPF_CORE_READ(tg, shares) >> SHARES_SHIFT);
		if (!TELLS_LIMITS)
			read_quota(id, tg);
		id = group_of(id)->parent;
		tg = BPF_CORE_READ(tg, parent);
	}
	return 0;
}

#endif /* FAIR_GROUP_BPF_H */
