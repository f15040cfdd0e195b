// SPDX-License-Identifier: Apache-2.0
/*
 * Dispatch queues, as in kernel/sched/ext.c: first in, first out, or by virtual time, never both at
 * once; found by a number. Each CPU has a local one, from which alone it runs tasks.
 */
#include <stdlib.h>

#include "kernel/core.h"
#include "kernel/dsq.h"
#include "kernel/error.h"
#include "kernel/scx.h"
#include "machine/cpu.h"
#include "machine/line.h"
#include "machine/race.h"

static struct sim_dsq **bucket(struct sim *sim, u64 id)
{
	u64 hash = id * 0x9e3779b97f4a7c15ULL;

	return &sim->dsqs[hash >> 50];
}

struct sim_dsq *dsq_find(struct sim *sim, u64 id)
{
	struct sim_dsq *dsq = *bucket(sim, id);

	while (dsq && dsq->id != id)
		dsq = dsq->chain;
	return dsq;
}

int dsq_create(struct sim *sim, u64 id)
{
	struct sim_dsq *dsq;

	if (id & SCX_DSQ_BUILTIN)
		return -22;
	if (dsq_find(sim, id))
		return -17;
	dsq = calloc(1, sizeof(*dsq));
	if (!dsq)
		return -12;
	dsq->id = id;
	dsq->chain = *bucket(sim, id);
	*bucket(sim, id) = dsq;
	return 0;
}

void dsq_free(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sizeof(sim->dsqs) / sizeof(sim->dsqs[0]); i++) {
		while (sim->dsqs[i]) {
			struct sim_dsq *dsq = sim->dsqs[i];

			sim->dsqs[i] = dsq->chain;
			free(dsq);
		}
	}
}

/* Which queue a verdict of a program on @cpu names; the scheduler is ejected where there is none.
 */
struct sim_dsq *dsq_target(struct sim *sim, u64 id, u32 cpu)
{
	struct sim_dsq *dsq;

	if (id == SCX_DSQ_LOCAL)
		return &sim->cpus[cpu].local;
	if ((id & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON) {
		cpu = id;
		if (cpu < sim->config->cpus)
			return &sim->cpus[cpu].local;
		ext_error(sim, "invalid CPU %d in SCX_DSQ_LOCAL_ON dispatch verdict", (int)cpu);
		return &sim->global;
	}
	dsq = id == SCX_DSQ_GLOBAL ? &sim->global : dsq_find(sim, id);
	if (dsq)
		return dsq;
	ext_error(sim, "non-existent DSQ 0x%llx", id);
	return &sim->global;
}

static void link_before(struct sim_dsq *dsq, struct sim_task *task, struct sim_task *next)
{
	struct sim_task *prev = next ? next->prev : dsq->last;

	task->next = next;
	task->prev = prev;
	*(prev ? &prev->next : &dsq->first) = task;
	*(next ? &next->prev : &dsq->last) = task;
}

/* Where a task of @vtime goes: behind those of the same. Most come last, so from behind. */
static struct sim_task *place(struct sim_dsq *dsq, u64 vtime)
{
	struct sim_task *at = dsq->last, *next = NULL;

	while (at && (s64)(vtime - at->p.scx.dsq_vtime) < 0) {
		next = at;
		at = at->prev;
	}
	return next;
}

/* dispatch_enqueue() without what it does to the CPU of a local queue */
void dsq_add(struct sim *sim, struct sim_dsq *dsq, struct sim_task *task, u64 flags)
{
	if ((flags & SCX_ENQ_DSQ_PRIQ) && (dsq->id & SCX_DSQ_BUILTIN)) {
		ext_error(sim, "cannot use vtime ordering for built-in DSQs");
		flags &= ~SCX_ENQ_DSQ_PRIQ;
	}
	if (dsq->nr && !dsq->priq == !!(flags & SCX_ENQ_DSQ_PRIQ))
		ext_error(sim, "DSQ ID 0x%016llx already had %s tasks", dsq->id,
			  dsq->priq ? "PRIQ-enqueued" : "FIFO-enqueued");
	line_touch(sim, &dsq->nr, 1);
	line_touch(sim, &task->dsq, 1);
	dsq->priq = !!(flags & SCX_ENQ_DSQ_PRIQ);
	if (dsq->priq)
		link_before(dsq, task, place(dsq, task->p.scx.dsq_vtime));
	else
		link_before(dsq, task,
			    flags & (SCX_ENQ_HEAD | SCX_ENQ_PREEMPT) ? dsq->first : NULL);
	task->dsq = dsq;
	task->dsq_seq = ++dsq->seq;
	task->ddsp_dsq = SCX_DSQ_INVALID;
	task->ddsp_flags = 0;
	task->bpf_queued = 0;
	dsq->nr++;
}

void dsq_remove(struct sim_task *task)
{
	struct sim_dsq *dsq = task->dsq;

	if (!dsq)
		return;
	line_touch(sim_current, &dsq->nr, 1);
	line_touch(sim_current, &task->dsq, 1);
	*(task->prev ? &task->prev->next : &dsq->first) = task->next;
	*(task->next ? &task->next->prev : &dsq->last) = task->prev;
	task->dsq = NULL;
	task->next = task->prev = NULL;
	dsq->nr--;
}

/*
 * dispatch_enqueue() to a local queue; the task becomes that CPU's. Another CPU's lock is taken for
 * it, and none held meanwhile: whoever amid schedule() saw that queue empty would idle beside it.
 */
void dsq_enqueue_local(struct sim *sim, u32 id, struct sim_task *task, u64 flags)
{
	int elsewhere = sim->race && id != sim->event.cpu;
	struct sim_cpu *cpu = &sim->cpus[id];
	u32 held = 0;

	if (elsewhere) {
		held = race_drop(sim);
		race_lock(sim, id);
	}
	if (task->cpu != id) {
		cpu_waiting(sim, task->cpu, -1);
		cpu_waiting(sim, id, 1);
		sim->cpus[task->cpu].nr_running--;
		cpu->nr_running++;
		task->cpu = id;
	}
	dsq_add(sim, &cpu->local, task, flags);
	if ((flags & SCX_ENQ_PREEMPT) && cpu->current && cpu->current != task) {
		cpu->current->p.scx.slice = 0;
		core_resched(sim, id);
	} else if (!cpu->current) {
		core_resched(sim, id);
	}
	if (elsewhere) {
		race_unlock(sim, id);
		race_take_back(sim, held);
	}
}

/* A task that another CPU queued needs that CPU's lock; another CPU may be faster meanwhile. */
static int still_there(struct sim *sim, struct sim_dsq *dsq, struct sim_task *task, u32 cpu)
{
	u32 from = task->cpu, held;
	int there;

	if (from == cpu || !sim->race)
		return 1;
	held = race_drop(sim);
	race_lock(sim, from);
	there = task->dsq == dsq && task->cpu == from;
	race_unlock(sim, from);
	race_take_back(sim, held);
	return there && task->dsq == dsq && task->cpu == from;
}

/* consume_dispatch_q(): move the first that may run on @cpu to its local queue */
int dsq_consume(struct sim *sim, struct sim_dsq *dsq, u32 cpu)
{
	struct sim_task *task;

again:
	for (task = dsq->first; task; task = task->next) {
		if (task->cpu != cpu && (task->p.migration_disabled || !sim_allowed(task, cpu)))
			continue;
		if (!still_there(sim, dsq, task, cpu))
			goto again;
		dsq_remove(task);
		dsq_enqueue_local(sim, cpu, task, 0);
		return 1;
	}
	return 0;
}
