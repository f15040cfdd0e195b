/* SPDX-License-Identifier: GPL-2.0 */
/* Control groups come, go, and change. */
#ifndef OPS_CGROUP_BPF_H
#define OPS_CGROUP_BPF_H

#include "ops/throttle.bpf.h"

static u32 group_next = 1;

static u64 quota_ns(u64 us)
{
	return us == ~0ULL ? 0 : us * 1000;
}

/*
 * Return a free number; 0 if none is left: the tasks of the group are then those of the group
 * above.
 */
static u32 free_group(void)
{
	u32 i, found = 0;

	bpf_for(i, 0, MAX_GROUPS) {
		u32 id = (group_next + i) & (MAX_GROUPS - 1);

		if (!id || group_of(id)->taken || (group_of(id)->word & NR_MASK))
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
	u64 key = BPF_CORE_READ(cgrp, kn, id);
	struct cgroup *up;
	struct fair_group *g;
	u32 found, number, parent = 0;

	if (!cgrp->level)
		return 0;
	up = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (up) {
		parent = group_id(up);
		bpf_cgroup_release(up);
	}
	found = free_group();
	if (found && !prepare_quota(found))
		return -ENOMEM;
	number = found ? found : parent | BORROWED;
	if (bpf_map_update_elem(&group_numbers, &key, &number, 0))
		return -ENOMEM;
	if (!found)
		return 0;
	g = group_of(found);
	__builtin_memset(g, 0, sizeof(*g));
	g->taken = 1;
	g->parent = parent;
	g->weight = args->weight * FAIR_ONE / GANG_WEIGHT_DEFAULT;
	g->share = g->weight << SHARE_BITS;
	if (TELLS_LIMITS)
		set_quota(found, quota_ns(args->bw_quota_us), args->bw_period_us * 1000);
	return 0;
}

SEC("struct_ops.s/gang_cgroup_exit")
void BPF_PROG(gang_cgroup_exit, struct cgroup *cgrp)
{
	u64 key = BPF_CORE_READ(cgrp, kn, id);
	u32 id = group_number(cgrp);

	bpf_map_delete_elem(&group_numbers, &key);
	if (!id || id & BORROWED)
		return;
	set_quota(id, 0, MSEC);
	group_of(id)->taken = 0;
}

SEC("struct_ops/gang_cgroup_set_weight")
void BPF_PROG(gang_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u32 id = group_number(cgrp);

	if (!(id & BORROWED))
		set_weight(id, weight * FAIR_ONE / GANG_WEIGHT_DEFAULT);
}

SEC("struct_ops/gang_cgroup_set_bandwidth")
void BPF_PROG(gang_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
	      u64 burst_us)
{
	u32 id = group_number(cgrp);

	if (!(id & BORROWED))
		set_quota(id, quota_ns(quota_us), period_us * 1000);
}

#endif /* OPS_CGROUP_BPF_H */
