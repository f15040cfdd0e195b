/* SPDX-License-Identifier: GPL-2.0 */
/* Control groups as they come, go, and change: weights, limits, who is in them. */
#ifndef FAIR_CGROUP_BPF_H
#define FAIR_CGROUP_BPF_H

#include "fair_account.bpf.h"

#define SHARES_SHIFT 4 /* task_group.shares of weight 100 is 2^20 (NICE_0_LOAD), FAIR_ONE 2^16 */

static u32 group_next = 1;

static u32 group_id(struct cgroup *cgrp)
{
	u32 *id = cgrp ? bpf_cgrp_storage_get(&group_ids, cgrp, 0, 0) : NULL;

	return id ? *id : 0;
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

/*
 * cpu.weight and cpu.idle, which is a weight in the kernel, as its groups have them now. Asked for
 * at ticks: 6.18 tells nobody of cpu.idle.
 */
static void read_weights(const struct task_struct *p, const struct fair_task *t)
{
	const struct task_group *tg;
	u32 id = t->group, level;

	if (!id || !bpf_core_field_exists(p->sched_task_group))
		return;
	tg = BPF_CORE_READ(p, sched_task_group);
	bpf_for(level, 0, DEPTH) {
		if (!id || !tg)
			break;
		set_weight(id, BPF_CORE_READ(tg, shares) >> SHARES_SHIFT);
		id = group_of(id)->parent;
		tg = BPF_CORE_READ(tg, parent);
	}
}

static u64 quota_ns(u64 us)
{
	return us == ~0ULL ? 0 : us * 1000;
}

/* A free number; 0: none is left, and the tasks of the group are the root's. */
static u32 free_group(void)
{
	u32 i, found = 0;

	bpf_for(i, 0, MAX_GROUPS) {
		u32 id = (group_next + i) & (MAX_GROUPS - 1);

		if (!id || group_of(id)->taken)
			continue;
		found = id;
		break;
	}
	if (found)
		group_next = found + 1;
	return found;
}

SEC("struct_ops.s/gang_cgroup_init")
s32 BPF_PROG(gang_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	u32 *id = bpf_cgrp_storage_get(&group_ids, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct cgroup *up;
	struct fair_group *g;
	u32 found;

	if (!id)
		return -ENOMEM;
	if (!cgrp->level)
		return 0;
	found = free_group();
	if (!found)
		return 0;
	g = group_of(found);
	__builtin_memset(g, 0, sizeof(*g));
	g->taken = 1;
	up = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (up) {
		g->parent = group_id(up);
		bpf_cgroup_release(up);
	}
	g->weight = args->weight * FAIR_ONE / GANG_WEIGHT_DEFAULT;
	g->share = g->weight << SHARE_BITS;
	*id = found;
	set_quota(found, quota_ns(args->bw_quota_us), args->bw_period_us * 1000);
	return 0;
}

SEC("struct_ops.s/gang_cgroup_exit")
void BPF_PROG(gang_cgroup_exit, struct cgroup *cgrp)
{
	u32 id = group_id(cgrp), slot = group_of(id)->slot;

	if (!id)
		return;
	set_quota(id, 0, MSEC);
	if (slot)
		quota_group[slot & (MAX_QUOTAS - 1)] = 0;
	group_of(id)->taken = 0;
}

SEC("struct_ops/gang_cgroup_move")
void BPF_PROG(gang_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (!t)
		return;
	if (t->on)
		deactivate(t);
	t->group = group_id(to);
	if (t->on)
		activate(t, t->own);
}

SEC("struct_ops/gang_cgroup_set_weight")
void BPF_PROG(gang_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_weight(group_id(cgrp), weight * FAIR_ONE / GANG_WEIGHT_DEFAULT);
}

SEC("struct_ops/gang_cgroup_set_bandwidth")
void BPF_PROG(gang_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
	      u64 burst_us)
{
	set_quota(group_id(cgrp), quota_ns(quota_us), period_us * 1000);
}

#endif /* FAIR_CGROUP_BPF_H */
