// SPDX-License-Identifier: Apache-2.0
/*
 * cpu.max: a group has a pool that is filled once a period, each of its queues takes a helping of
 * it, and one that gets nothing more is out until the next.
 */
#include "fair/bandwidth.h"
#include "fair/queue.h"
#include "kernel/core.h"
#include "machine/agenda.h"

#define HELPING 5000000LL /* sched_cfs_bandwidth_slice() */

/* Have @queue have @runtime, or as much of that as the pool has left; 0: that is nothing. */
static int top_up(struct sim_share *share, struct sim_queue *queue, s64 runtime)
{
	s64 want = runtime - queue->runtime;

	if (want > (s64)share->pool)
		want = share->pool;
	share->pool -= want;
	queue->runtime += want;
	return queue->runtime > 0;
}

/* assign_cfs_rq_runtime(); 0: nothing is left for the queue */
int cfs_help(struct sim *sim, struct sim_queue *queue)
{
	struct sim_share *share = &sim->fair->shares[queue->group];

	return !share->timer || queue->runtime > 0 || top_up(share, queue, HELPING);
}

void cfs_throttle(struct sim *sim, struct sim_queue *queue)
{
	queue->throttled = 1;
	queue->current = queue->buddy = NULL;
	cfs_descend(sim, &queue->entity, CFS_THROTTLED);
}

static void unthrottle(struct sim *sim, struct sim_queue *queue)
{
	if (!top_up(&sim->fair->shares[queue->group], queue, 1))
		return;
	queue->throttled = 0;
	if (!queue->nr)
		return;
	cfs_reweight(sim, &queue->entity, cfs_share(sim, queue));
	cfs_climb(sim, cfs_queue(sim, sim->description->groups[queue->group].parent, queue->cpu),
		  &queue->entity, 0);
	core_resched(sim, queue->cpu);
}

/* A period of @group begins. */
void cfs_refill(struct sim *sim, u32 group)
{
	const struct sim_group_config *config = &sim->description->groups[group];
	struct sim_share *share = &sim->fair->shares[group];
	u32 first = sim_random(&sim->random, sim->config->cpus), i;

	share->pool = config->quota_ns;
	agenda_timer(sim, share->timer, sim->now + config->period_ns);
	for (i = 0; i < sim->config->cpus; i++) {
		u32 cpu = (first + i) % sim->config->cpus;
		struct sim_queue *queue = cfs_find(sim, group, cpu);

		if (queue && queue->throttled)
			unthrottle(sim, queue);
	}
}
