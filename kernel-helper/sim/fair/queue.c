// SPDX-License-Identifier: Apache-2.0
/*
 * The queues of EEVDF, one for each group on each CPU, and the virtual times in them. What is in a
 * queue are tasks and, as one entity each, the groups below. What a group's entity weighs is its
 * cpu.weight times the part of its load that is on that CPU.
 */
#include <stdlib.h>

#include "fair/queue.h"
#include "fair/slice.h"

#define MIN_SHARES 2

static struct sim_queue **bucket(struct sim *sim, u32 group, u32 cpu)
{
	u64 hash = ((u64)group << 10 | cpu) * 0x9e3779b97f4a7c15ULL;

	return &sim->fair->queues[hash >> 48];
}

struct sim_queue *cfs_find(struct sim *sim, u32 group, u32 cpu)
{
	struct sim_queue *queue = *bucket(sim, group, cpu);

	while (queue && (queue->group != group || queue->cpu != cpu))
		queue = queue->chain;
	return queue;
}

/* The queue of @group on @cpu, made if there is none. */
struct sim_queue *cfs_queue(struct sim *sim, u32 group, u32 cpu)
{
	struct sim_queue **at = bucket(sim, group, cpu);
	struct sim_queue *queue = group ? cfs_find(sim, group, cpu) : sim->fair->roots[cpu];

	if (queue)
		return queue;
	queue = sim->fair->unused;
	if (queue)
		sim->fair->unused = queue->chain;
	else
		queue = calloc(1, sizeof(*queue));
	if (!queue)
		abort();
	*queue = (struct sim_queue){.list = queue->list, .room = queue->room};
	queue->group = group;
	queue->cpu = cpu;
	queue->entity.own = queue;
	queue->entity.idle = sim->description->groups[group].idle;
	if (sim->fair->shares[group].lag_cpu == cpu)
		queue->entity.lag = sim->fair->shares[group].lag;
	queue->chain = *at;
	if (!group)
		sim->fair->roots[cpu] = queue;
	return *at = queue;
}

/* A queue that is empty is not kept; of its entity the lag is. */
static void drop_queue(struct sim *sim, struct sim_queue *queue)
{
	struct sim_share *share = &sim->fair->shares[queue->group];
	struct sim_queue **at = bucket(sim, queue->group, queue->cpu);

	if (!queue->group || share->timer)
		return;
	share->lag = queue->entity.lag;
	share->lag_cpu = queue->cpu;
	while (*at != queue)
		at = &(*at)->chain;
	*at = queue->chain;
	queue->chain = sim->fair->unused;
	sim->fair->unused = queue;
}

/* ---- virtual time -------------------------------------------------------- */

s64 cfs_virtual(u64 ns, const struct sim_entity *entity)
{
	return (s128)ns * ONE / (s64)entity->weight;
}

s64 cfs_slice(const struct sim *sim, const struct sim_entity *entity)
{
	return cfs_virtual(sim->fair->slice, entity);
}

/* avg_vruntime(): the mean of all, weighted */
s64 cfs_mean(struct sim_queue *queue)
{
	s128 sum = 0;
	u32 i;

	if (!queue->nr)
		return queue->clock;
	for (i = 0; i < queue->nr; i++)
		sum += (s128)(queue->list[i]->vruntime - queue->clock) *
		       (s64)queue->list[i]->weight;
	if (sum < 0)
		sum -= queue->load - 1; /* rounded down */
	queue->clock += (s64)(sum / (s64)queue->load);
	return queue->clock;
}

/* ---- weights ------------------------------------------------------------- */

static void weigh(struct sim *sim, struct sim_queue *queue, s64 change)
{
	queue->load += change;
	sim->fair->shares[queue->group].load += change;
}

/* calc_group_shares(); a group that is empty, and delayed, weighs what it did: update_cfs_group()
 */
u64 cfs_share(struct sim *sim, const struct sim_queue *queue)
{
	u64 all = sim->fair->shares[queue->group].load, shares = sim->groups[queue->group].shares;
	u64 mine = all ? (u64)((s128)shares * queue->load / all) : shares;

	if (!queue->load)
		return queue->entity.weight;
	return mine < MIN_SHARES ? MIN_SHARES : mine;
}

/* reweight_entity(): lag and what is left of the slice keep their meaning in real time */
void cfs_reweight(struct sim *sim, struct sim_entity *entity, u64 weight)
{
	s64 clock, lag, left, safe;

	if (weight == entity->weight)
		return;
	if (!entity->on) {
		entity->weight = weight;
		return;
	}
	clock = cfs_mean(entity->queue);
	lag = clock - entity->vruntime;
	left = entity->deadline - entity->vruntime;
	safe = entity->protected - entity->vruntime;
	weigh(sim, entity->queue, (s64)weight - (s64)entity->weight);
	entity->vruntime = clock - (s64)((s128)lag * (s64)entity->weight / (s64)weight);
	entity->deadline = entity->vruntime + (s64)((s128)left * (s64)entity->weight / (s64)weight);
	entity->protected =
		entity->vruntime + (s64)((s128)safe * (s64)entity->weight / (s64)weight);
	entity->weight = weight;
}

/* ---- in and out ---------------------------------------------------------- */

/* place_entity() */
static void place(struct sim *sim, struct sim_queue *queue, struct sim_entity *entity, int initial)
{
	s64 lag = entity->lag;

	if (queue->load)
		lag = (s128)lag * (s64)(queue->load + entity->weight) / (s64)queue->load;
	entity->vruntime = cfs_mean(queue) - lag;
	entity->deadline = entity->vruntime + cfs_slice(sim, entity) / (initial ? 2 : 1);
	/* slices begin anywhere: nothing keeps the CPUs of a real host in step */
	if (initial)
		entity->deadline -= sim_random(&sim->random, cfs_slice(sim, entity) / 2);
}

static void add(struct sim *sim, struct sim_queue *queue, struct sim_entity *entity)
{
	if (queue->nr == queue->room) {
		queue->room = queue->room ? 2 * queue->room : 4;
		queue->list = realloc(queue->list, queue->room * sizeof(*queue->list));
		if (!queue->list)
			abort();
	}
	queue->list[queue->nr++] = entity;
	entity->queue = queue;
	entity->on = 1;
	weigh(sim, queue, entity->weight);
}

/* An entity that leaves keeps its lag, up to a bound; a delayed one is owed nothing (DELAY_ZERO).
 */
static void take_out(struct sim *sim, struct sim_entity *entity)
{
	struct sim_queue *queue = entity->queue;
	s64 most = cfs_virtual(slice_most_lag(sim->fair->slice, sim->config->tick_ns), entity);
	u32 i;

	entity->lag = cfs_mean(queue) - entity->vruntime;
	entity->lag = entity->lag > most ? most : entity->lag < -most ? -most : entity->lag;
	if (entity->delayed && entity->lag > 0)
		entity->lag = 0;
	entity->on = entity->delayed = 0;
	for (i = 0; queue->list[i] != entity; i++)
		;
	queue->list[i] = queue->list[--queue->nr];
	weigh(sim, queue, -(s64)entity->weight);
	if (queue->current == entity)
		queue->current = NULL;
	if (queue->buddy == entity)
		queue->buddy = NULL;
}

/*
 * dequeue_entity() with DELAY_DEQUEUE (kernel/sched/fair.c since 6.12): an entity that goes to
 * sleep and had more than its share stays in the queue, and so pays, until it would be picked. 0:
 * it had not.
 */
static int delay(struct sim_entity *entity)
{
	struct sim_queue *queue = entity->queue;

	if (cfs_eligible(entity, cfs_mean(queue)))
		return 0;
	if (queue->buddy == entity)
		queue->buddy = NULL;
	return entity->delayed = 1;
}

/* requeue_delayed_entity(): @entity, which is delayed, wakes. */
static void requeue(struct sim *sim, struct sim_entity *entity)
{
	struct sim_queue *queue = entity->queue;

	if (cfs_mean(queue) - entity->vruntime > 0) {
		take_out(sim, entity);
		place(sim, queue, entity, 0);
		add(sim, queue, entity);
	}
	entity->delayed = 0;
}

/* Put @entity into @queue, and the groups above where they are not in theirs. */
void cfs_climb(struct sim *sim, struct sim_queue *queue, struct sim_entity *entity, int initial)
{
	for (;;) {
		if (!entity->on) {
			place(sim, queue, entity, initial);
			add(sim, queue, entity);
		} else if (entity->delayed) {
			requeue(sim, entity);
		}
		if (!queue->group || queue->throttled)
			return;
		entity = &queue->entity;
		cfs_reweight(sim, entity, cfs_share(sim, queue));
		queue = cfs_queue(sim, sim->description->groups[queue->group].parent, queue->cpu);
	}
}

/* Take @entity out, and groups that are empty without it, unless they are delayed. */
void cfs_descend(struct sim *sim, struct sim_entity *entity, enum cfs_leave how)
{
	while (entity && entity->on) {
		struct sim_queue *queue = entity->queue;
		struct sim_entity *group = queue->group ? &queue->entity : NULL;

		if (how == CFS_SLEEPS && delay(entity))
			return;
		if (how == CFS_MOVES)
			how = CFS_SLEEPS;
		take_out(sim, entity);
		if (queue->nr) {
			for (; group && group->on; group = cfs_above(group))
				cfs_reweight(sim, group, cfs_share(sim, group->own));
			return;
		}
		if (group && group->on) {
			entity = group;
			continue;
		}
		if (group)
			drop_queue(sim, queue);
		return;
	}
}

static void free_chain(struct sim_queue *queue)
{
	while (queue) {
		struct sim_queue *next = queue->chain;

		free(queue->list);
		free(queue);
		queue = next;
	}
}

void cfs_free(struct sim *sim)
{
	u32 i;

	for (i = 0; i < CFS_BUCKETS; i++)
		free_chain(sim->fair->queues[i]);
	free_chain(sim->fair->unused);
}
