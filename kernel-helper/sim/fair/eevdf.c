// SPDX-License-Identifier: Apache-2.0
/*
 * EEVDF (Stoica and Abdel-Wahab 1995, kernel/sched/fair.c since 6.6): of those that had no more
 * than their share, who has the earliest virtual deadline. As in the kernel the one that runs goes
 * on until its slice is over or it is eligible no more. The queues are in queue.c, cpu.max is in
 * bandwidth.c.
 *
 * Left out: load averages (the load is that of the moment).
 */
#include "fair/bandwidth.h"
#include "fair/eevdf.h"
#include "fair/queue.h"
#include "kernel/core.h"

/* The slice of @entity on @cpu is over: update_deadline() and the end of update_curr(), 6.18. */
static void renew(struct sim *sim, u32 cpu, struct sim_entity *entity)
{
	entity->deadline = entity->vruntime + cfs_slice(sim, entity);
	if (entity->queue->nr > 1)
		core_resched(sim, cpu);
}

/* update_curr(), with account_cfs_rq_runtime() */
void cfs_update(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	u64 ns = sim->now - cpu->exec_start;
	struct sim_entity *entity;

	cpu->exec_start = sim->now;
	if (!cpu->current || !ns)
		return;
	cpu->current->p.se.sum_exec_runtime += ns;
	for (entity = cpu->current->entity; entity && entity->on; entity = cfs_above(entity)) {
		entity->vruntime += cfs_virtual(ns, entity);
		if (entity->vruntime >= entity->deadline)
			renew(sim, id, entity);
		if (sim->fair->shares[entity->queue->group].timer)
			entity->queue->runtime -= ns;
	}
}

/* entity_tick(): the share of a group changes with what it does elsewhere */
void cfs_tick(struct sim *sim, u32 cpu)
{
	struct sim_entity *entity;

	cfs_update(sim, cpu);
	if (!sim->cpus[cpu].current)
		return;
	for (entity = sim->cpus[cpu].current->entity; entity && entity->on;
	     entity = cfs_above(entity))
		if (entity->own)
			cfs_reweight(sim, entity, cfs_share(sim, entity->own));
}

void cfs_enqueue(struct sim *sim, struct sim_task *task, int initial)
{
	cfs_climb(sim, cfs_queue(sim, task->config->group, task->cpu), task->entity, initial);
}

void cfs_dequeue(struct sim *sim, struct sim_task *task, int sleeps)
{
	cfs_descend(sim, task->entity, sleeps ? CFS_SLEEPS : CFS_MOVES);
}

/* ---- choosing ------------------------------------------------------------ */

/* pick_eevdf() */
static struct sim_entity *pick_entity(struct sim_queue *queue)
{
	s64 clock = cfs_mean(queue);
	struct sim_entity *current = queue->current, *best = NULL, *least = NULL;
	u32 i;

	if (queue->buddy && cfs_eligible(queue->buddy, clock))
		return queue->buddy;
	if (current && cfs_eligible(current, clock) && current->protected - current->vruntime > 0)
		return current;
	for (i = 0; i < queue->nr; i++) {
		struct sim_entity *entity = queue->list[i];

		if (!least || entity->vruntime < least->vruntime)
			least = entity;
		if (cfs_eligible(entity, clock) && (!best || entity->deadline < best->deadline))
			best = entity;
	}
	return best ? best : least;
}

struct sim_task *cfs_pick(struct sim *sim, u32 cpu)
{
	struct sim_queue *queue = cfs_queue(sim, 0, cpu);

	while (queue->nr) {
		struct sim_entity *entity = pick_entity(queue);

		if (entity->delayed) {
			/* it has paid */
			cfs_descend(sim, entity, CFS_MOVES);
			queue = cfs_queue(sim, 0, cpu);
			continue;
		}
		if (entity->task)
			return entity->task;
		queue = entity->own;
		if (cfs_help(sim, queue))
			continue;
		cfs_throttle(sim, queue);
		queue = cfs_queue(sim, 0, cpu);
	}
	return NULL;
}

/* Each entity on the way to @next is current, and from now on safe if it was not before. */
void cfs_set_next(struct sim_task *prev, struct sim_task *next)
{
	struct sim_entity *entity;

	for (entity = next ? next->entity : NULL; entity; entity = cfs_above(entity))
		entity->mark = 1;
	for (entity = prev ? prev->entity : NULL; entity && entity->on; entity = cfs_above(entity))
		if (!entity->mark && entity->queue->current == entity)
			entity->queue->current = NULL;
	for (entity = next ? next->entity : NULL; entity; entity = cfs_above(entity)) {
		entity->mark = 0;
		if (entity->queue->buddy == entity)
			entity->queue->buddy = NULL;
		if (entity->queue->current == entity)
			continue;
		entity->queue->current = entity;
		entity->protected = entity->deadline;
	}
}

/* For how long does the current task of @cpu go on before there is something to decide? */
u64 cfs_left(struct sim *sim, u32 cpu)
{
	struct sim_entity *entity;
	u64 least = SIM_NEVER;

	for (entity = sim->cpus[cpu].current->entity; entity && entity->on;
	     entity = cfs_above(entity)) {
		s64 left = entity->deadline - entity->vruntime;
		u64 ns = left > 0 ? (u64)((s128)left * (s64)entity->weight / ONE) + 1 : 0;
		struct sim_queue *queue = entity->queue;

		if (queue->nr > 1 && ns < least)
			least = ns;
		if (!sim->fair->shares[queue->group].timer)
			continue;
		ns = queue->runtime > 0 ? queue->runtime : 0;
		least = ns < least ? ns : least;
	}
	return least;
}

/* check_preempt_wakeup_fair(): @task was queued where @current runs, which is up to date */
int cfs_preempts(const struct sim_task *task, const struct sim_task *current)
{
	struct sim_entity *mine = task->entity, *its;
	u32 idle = 0, its_idle = 0;

	for (its = current->entity; its && its->on; its = cfs_above(its))
		its->mark = 1;
	for (; mine && mine->on; mine = cfs_above(mine)) {
		if (mine->queue->current && mine->queue->current->mark)
			break;
	}
	for (its = current->entity; its && its->on; its = cfs_above(its)) {
		its->mark = 0;
		if (mine && mine->on && its->queue == mine->queue)
			its_idle = its->idle;
	}
	if (!mine || !mine->on || mine == mine->queue->current)
		return 0;
	idle = mine->idle;
	if (idle != its_idle)
		return its_idle;
	return pick_entity(mine->queue) == mine;
}

/* May it run, as far as cpu.max is concerned? */
int cfs_may_run(const struct sim_task *task)
{
	const struct sim_entity *entity = task->entity;

	while (entity && entity->on)
		entity = cfs_above(entity);
	return !entity;
}

/* yield_to_task_fair(): @from gives up what it has, @to is next if it is eligible */
void cfs_favour(struct sim *sim, struct sim_task *from, struct sim_task *to)
{
	struct sim_entity *entity = from->entity;

	if (entity->on && entity->queue->nr > 1 && cfs_eligible(entity, cfs_mean(entity->queue))) {
		entity->vruntime = entity->deadline;
		entity->deadline += cfs_slice(sim, entity);
	}
	for (entity = to->entity; entity && entity->on; entity = cfs_above(entity))
		entity->queue->buddy = entity;
}
