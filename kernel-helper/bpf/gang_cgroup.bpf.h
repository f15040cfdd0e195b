/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cpu.weight and cpu.max: what `virsh schedinfo` sets keeps its meaning.
 *
 * The kernel applies neither to a sched_ext scheduler's tasks. Both are read from the task's
 * groups (struct task_group, cgroup v1 and v2 alike) every WEIGH_NS while it runs, which needs no
 * callback and so works on every kernel.
 *
 * Weights of nested groups are multiplied: 200 inside 50 is 100. That is flatter than the fair
 * class, which divides among the groups that are busy just now. Limits are kept by gangs only: by
 * the sum of what each vCPU's own group allows, and by each group above that, which libvirt makes
 * for the guest as a whole.
 */
#ifndef GANG_CGROUP_BPF_H
#define GANG_CGROUP_BPF_H

#include "gang_state.bpf.h"

#define WEIGH_NS	 (100 * MSEC)
#define GROUP_LEVELS	 8
#define SHARES_ONE_SHIFT 20 /* task_group.shares of weight 100, NICE_0_LOAD */
#define MOST_WEIGHT	 (1024ULL * GANG_WEIGHT_MAX)
#define NO_LIMIT	 (~0ULL)

/* What the groups of a task say: weight 1024 means as if there were none; rate as in gang_state. */
struct group_load {
	u64 weight;
	u64 own_rate;
	u64 rate; /* of the groups above its own */
};

static u64 rate_of(const struct task_group *group)
{
	u64 quota, period;

	if (!bpf_core_field_exists(group->cfs_bandwidth))
		return NO_LIMIT;
	quota = BPF_CORE_READ(group, cfs_bandwidth.quota);
	period = BPF_CORE_READ(group, cfs_bandwidth.period);
	return quota == NO_LIMIT || !period ? NO_LIMIT : (quota << 10) / period;
}

static void read_groups(const struct task_struct *p, struct group_load *load)
{
	const struct task_group *group;
	u32 level;

	*load = (struct group_load){1024, NO_LIMIT, NO_LIMIT};
	if (!bpf_core_field_exists(p->sched_task_group))
		return;
	group = BPF_CORE_READ(p, sched_task_group);
	bpf_for(level, 0, GROUP_LEVELS) {
		u64 rate, shares;

		if (!group)
			break;
		shares = BPF_CORE_READ(group, shares);
		rate = rate_of(group);
		if (level)
			load->rate = rate < load->rate ? rate : load->rate;
		else
			load->own_rate = rate;
		load->weight = load->weight * shares >> SHARES_ONE_SHIFT;
		if (load->weight > MOST_WEIGHT)
			load->weight = MOST_WEIGHT;
		group = BPF_CORE_READ(group, parent);
	}
}

static u32 clamped_weight(u64 weight)
{
	return weight < GANG_WEIGHT_MIN ? GANG_WEIGHT_MIN :
	       weight > GANG_WEIGHT_MAX ? GANG_WEIGHT_MAX :
					  weight;
}

static void weigh_gang(u32 id, const struct group_load *load)
{
	struct gang_state *gang = gang_of(id);
	u64 rate = load->own_rate;

	if (rate != NO_LIMIT)
		rate *= gang_popcount(gang->columns);
	rate = rate < load->rate ? rate : load->rate;
	gang->weight = clamped_weight(asked_weights[gang_index(id)] * load->weight >> 10);
	gang->rate = rate == NO_LIMIT ? 0 : rate ? rate : 1;
}

/* Read the groups of a task again. */
static void weigh(const struct task_struct *p, struct gang_task *task, u64 now)
{
	struct group_load load;

	read_groups(p, &load);
	task->weighed = now;
	task->weight = clamped_weight(p->scx.weight * load.weight >> 10);
	if (task->gang)
		weigh_gang(task->gang, &load);
}

#endif /* GANG_CGROUP_BPF_H */
