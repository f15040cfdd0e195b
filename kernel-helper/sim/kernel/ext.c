// SPDX-License-Identifier: Apache-2.0
/*
 * kernel/sched/ext.c of 6.18 (of 7.0, with !config->forgets) around the ops of a scheduler, in its
 * order; functions here are named after those they stand for. Left out: bypass, core scheduling,
 * hotplug, other classes.
 */
#include "kernel/core.h"
#include "kernel/dsq.h"
#include "kernel/enable.h"
#include "kernel/error.h"
#include "kernel/ext.h"
#include "kernel/idle.h"
#include "kernel/ops.h"
#include "kernel/timer.h"
#include "kernel/scx.h"
#include "machine/agenda.h"
#include "machine/cpu.h"

static int is_queued(const struct sim_task *task)
{
	return task->p.scx.flags & SCX_TASK_QUEUED;
}

/* update_curr_scx() */
static void update_curr(struct sim *sim, struct sim_cpu *cpu)
{
	struct sim_task *task = cpu->current;
	u64 ns = sim->now - cpu->exec_start;

	cpu->exec_start = sim->now;
	if (!task)
		return;
	task->p.se.sum_exec_runtime += ns;
	if (task->p.scx.slice != SCX_SLICE_INF)
		task->p.scx.slice -= ns < task->p.scx.slice ? ns : task->p.scx.slice;
}

/* ---- queueing ------------------------------------------------------------ */

/* The CPU that has the local queue @dsq. */
static u32 local_cpu(const struct sim *sim, const struct sim_dsq *dsq)
{
	return ((const char *)dsq - (const char *)&sim->cpus->local) / sizeof(*sim->cpus);
}

static void dispatch_enqueue(struct sim *sim, struct sim_dsq *dsq, struct sim_task *task, u64 flags)
{
	if (dsq->id == SCX_DSQ_LOCAL)
		dsq_enqueue_local(sim, local_cpu(sim, dsq), task, flags);
	else
		dsq_add(sim, dsq, task, flags);
}

/* May @task be moved to the local queue of @cpu? Asking for what may not be ejects. */
static int may_run_on(struct sim *sim, const struct sim_task *task, const struct sim_dsq *dsq)
{
	u32 cpu;

	if (dsq->id != SCX_DSQ_LOCAL)
		return 1;
	cpu = local_cpu(sim, dsq);
	if (cpu == task->cpu || (sim_allowed(task, cpu) && !task->p.migration_disabled))
		return 1;
	ext_error(sim, "SCX_DSQ_LOCAL[_ON] target CPU %u not allowed for %s[%d]", cpu, task->p.comm,
		  task->p.pid);
	return 0;
}

/* A verdict of a program on @cpu is carried out. */
void ext_insert(struct sim *sim, struct sim_task *task, u64 id, u64 flags, u32 cpu)
{
	struct sim_dsq *dsq = dsq_target(sim, id, cpu);

	/* move_remote_task_to_local_dsq(): enqueue_task_scx() took flags as an int before 7.0 */
	if (sim->config->forgets && dsq->id == SCX_DSQ_LOCAL && local_cpu(sim, dsq) != task->cpu)
		flags = (u32)flags;
	dispatch_enqueue(sim, may_run_on(sim, task, dsq) ? dsq : &sim->global, task, flags);
}

/* do_enqueue_task() */
static void do_enqueue(struct sim *sim, struct sim_task *task, u64 flags)
{
	if (task->ddsp_dsq == SCX_DSQ_INVALID) {
		if (!sim->ops->enqueue) {
			task->p.scx.slice = SCX_SLICE_DFL;
			dispatch_enqueue(sim, &sim->global, task, flags);
			return;
		}
		task->bpf_queued = 1;
		sim->event.direct = task;
		OP_KF(sim, SCX_KF_ENQUEUE, sim->config->enqueue_ns, enqueue, &task->p, flags);
		sim->event.direct = NULL;
	}
	if (task->ddsp_dsq != SCX_DSQ_INVALID)
		ext_insert(sim, task, task->ddsp_dsq, task->ddsp_flags | flags, task->cpu);
}

void ext_reenqueue(struct sim *sim, struct sim_task *task)
{
	dsq_remove(task);
	do_enqueue(sim, task, SCX_ENQ_REENQ);
}

/* enqueue_task_scx() */
static void enqueue(struct sim *sim, struct sim_task *task, u64 flags)
{
	task->runnable_at = sim->now;
	task->p.scx.flags |= SCX_TASK_QUEUED;
	OP(sim, runnable, &task->p, flags);
	do_enqueue(sim, task, flags);
}

/* dequeue_task_scx() of a task that runs: it goes to sleep */
static void dequeue(struct sim *sim, struct sim_task *task, u64 flags)
{
	if (task->bpf_queued) {
		OP(sim, dequeue, &task->p, flags);
		task->bpf_queued = 0;
	}
	if (sim->cpus[task->cpu].current == task) {
		update_curr(sim, &sim->cpus[task->cpu]);
		OP_AT(sim, sim->config->stopping_ns, stopping, &task->p, 0);
	}
	OP(sim, quiescent, &task->p, flags);
	task->p.scx.flags &= ~SCX_TASK_QUEUED;
	dsq_remove(task);
}

static u32 select_cpu(struct sim *sim, struct sim_task *task, u64 wake_flags)
{
	int cpu;

	if (!sim->ops->select_cpu) {
		cpu = idle_select(sim, task, task->cpu);
		if (cpu < 0)
			return task->cpu;
		task->p.scx.slice = SCX_SLICE_DFL;
		task->ddsp_dsq = SCX_DSQ_LOCAL;
		return cpu;
	}
	sim->event.direct = task;
	cpu = OP_RET_KF(sim, SCX_KF_ENQUEUE | SCX_KF_SELECT_CPU, sim->config->select_ns, select_cpu,
			&task->p, task->cpu, wake_flags);
	sim->event.direct = NULL;
	task->p.scx.selected_cpu = cpu;
	if (cpu >= 0 && (u32)cpu < sim->config->cpus)
		return cpu;
	ext_error(sim, "invalid CPU %d from ops.select_cpu()", cpu);
	return task->cpu;
}

/* ---- choosing ------------------------------------------------------------ */

/* flush_dispatch_buf() */
static void flush_buffer(struct sim *sim, u32 cpu)
{
	u32 i;

	for (i = 0; i < sim->event.buffered; i++) {
		struct sim_task *task = sim->event.buffer[i];

		if (!task->bpf_queued)
			continue; /* it went to sleep, or somebody was faster */
		ext_insert(sim, task, sim->event.buffer_dsq[i], sim->event.buffer_flags[i], cpu);
	}
	sim->event.moved += sim->event.buffered;
	sim->event.buffered = 0;
}

/* The loop of balance_one(): 1: prev goes on, 0: the local queue has somebody, -1: nobody */
static int dispatch_loop(struct sim *sim, u32 id, struct sim_task *prev)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	u32 loops = SCX_DSP_MAX_LOOPS;

	do {
		sim->event.buffered = sim->event.moved = 0;
		OP_KF(sim, SCX_KF_DISPATCH, sim->config->dispatch_ns, dispatch, id,
		      prev ? &prev->p : NULL);
		flush_buffer(sim, id);
		if (prev && is_queued(prev) && prev->p.scx.slice)
			return 1;
		if (cpu->local.nr || dsq_consume(sim, &sim->global, id))
			return 0;
		if (!--loops) {
			core_resched(sim, id);
			break;
		}
	} while (sim->event.moved);
	return -1;
}

/* balance_one() and pick_task_scx() */
static struct sim_task *pick(struct sim *sim, u32 id, struct sim_task *prev)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	int queued = prev && is_queued(prev), found = 0;
	struct sim_task *next;

	update_curr(sim, cpu);
	if (queued && prev->p.scx.slice)
		return prev;
	if (!cpu->local.nr && !dsq_consume(sim, &sim->global, id))
		found = dispatch_loop(sim, id, prev);
	if (found > 0 || (found < 0 && queued && !(sim->ops->flags & SCX_OPS_ENQ_LAST))) {
		if (!prev->p.scx.slice)
			prev->p.scx.slice = SCX_SLICE_DFL;
		return prev;
	}
	next = cpu->local.first;
	if (next && !next->p.scx.slice)
		next->p.scx.slice = SCX_SLICE_DFL;
	return next;
}

/* put_prev_task_scx() */
static void put_prev(struct sim *sim, u32 id, struct sim_task *prev, struct sim_task *next)
{
	update_curr(sim, &sim->cpus[id]);
	if (!is_queued(prev))
		return;
	OP_AT(sim, sim->config->stopping_ns, stopping, &prev->p, 1);
	prev->runnable_at = sim->now;
	if (prev->p.scx.slice)
		dsq_enqueue_local(sim, id, prev, SCX_ENQ_HEAD);
	else
		do_enqueue(sim, prev, next ? 0 : SCX_ENQ_LAST);
}

/* set_next_task_scx() */
static void set_next(struct sim *sim, u32 id, struct sim_task *next)
{
	dsq_remove(next);
	sim->cpus[id].exec_start = sim->now;
	OP_AT(sim, sim->config->running_ns, running, &next->p);
}

static void idle(struct sim *sim, u32 cpu, int is_idle, int notify)
{
	idle_note(sim, cpu, is_idle);
	if (notify)
		OP(sim, update_idle, cpu, is_idle);
}

/* ---- ticks, yields, kicks ------------------------------------------------ */

static u64 next_tick(struct sim *sim, u32 id)
{
	const struct sim_cpu *cpu = &sim->cpus[id];

	if (sim->ops->tick)
		return cpu_tick_from(sim, id, sim->now + 1);
	if (cpu->current->p.scx.slice == SCX_SLICE_INF)
		return SIM_NEVER;
	return cpu_tick_from(sim, id, cpu->exec_start + cpu->current->p.scx.slice);
}

static int tick(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	update_curr(sim, cpu);
	OP_AT(sim, sim->config->tick_op_ns, tick, &cpu->current->p);
	return !cpu->current->p.scx.slice;
}

/* A slice was changed: another tick may be the one that sees it over. */
void ext_rearm(struct sim *sim, struct sim_task *task)
{
	if (sim->cpus[task->cpu].current == task)
		agenda_tick(sim, task->cpu, next_tick(sim, task->cpu));
}

static int yield_to(struct sim *sim, struct sim_task *from, struct sim_task *to)
{
	int yielded;

	if (!sim->ops->yield)
		return 0;
	update_curr(sim, &sim->cpus[from->cpu]);
	yielded = OP_RET(sim, sim->config->op_ns, yield, &from->p, &to->p);
	ext_rearm(sim, from);
	return yielded;
}

/* kick_one_cpu(): the slice of who runs there is gone at once, the CPU hears of it @after ns. */
static void kick_one(struct sim *sim, u32 id, int preempt, u64 after)
{
	struct sim_task *current = sim->cpus[id].current;

	if (preempt && current) {
		current->p.scx.slice = 0;
		ext_rearm(sim, current);
	}
	sim->result->kicks++;
	sim->cpus[id].called |= id != sim->event.cpu;
	agenda_kick(sim, id, after);
}

/* kick_cpus_irq_workfn() on @id: kicks go out one after the other, in the order of CPUs. */
void ext_flush(struct sim *sim, u32 id)
{
	struct sim_cpu *self = &sim->cpus[id];
	u64 at = 0;
	u32 word;

	self->kicking = 0;
	for (word = 0; word < SIM_WORDS; word++) {
		u64 kick = self->kick[word], left = kick | self->kick_idle[word];

		while (left) {
			u64 bit = left & -left;
			u32 cpu = word * 64 + __builtin_ctzll(left);

			left &= ~bit;
			if (!(kick & bit) && sim->cpus[cpu].current)
				continue;
			at += sim->config->send_ns;
			kick_one(sim, cpu, !!(self->preempt[word] & bit),
				 cpu == id ? at : at + sim->config->kick_ns);
		}
		self->kick[word] = self->preempt[word] = self->kick_idle[word] = 0;
	}
	self->debt += at;
	sim->event.spent += at;
}

static void timer(struct sim *sim, u32 which)
{
	if (which == SIM_DAEMON)
		ext_reorder(sim);
	else if (which)
		timer_fire(sim, which);
	else
		ext_watch(sim);
}

const struct sim_class ext_class = {
	.start = ext_start,
	.init_task = ext_init_task,
	.exit_task = ext_exit_task,
	.select_cpu = select_cpu,
	.enqueue = enqueue,
	.dequeue = dequeue,
	.pick = pick,
	.put_prev = put_prev,
	.set_next = set_next,
	.idle = idle,
	.tick = tick,
	.next_tick = next_tick,
	.yield_to = yield_to,
	.timer = timer,
	.finish = ext_finish,
};
