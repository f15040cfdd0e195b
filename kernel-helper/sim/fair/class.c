// SPDX-License-Identifier: Apache-2.0
/*
 * The fair class, with the picks of eevdf.c: gangs are compared with it.
 *
 * A waking task goes to an idle CPU of its cache (idle.c) or else where it was, a new one to the
 * CPU with least to do. A CPU about to idle takes a waiting task from another. Now and then each
 * CPU looks for one that has two more tasks than itself, in its cache and, every eighth time,
 * everywhere.
 *
 *   pinned    a vCPU never leaves the CPU it was placed on (it is bound there)
 *   balance   a vCPU goes to no CPU where a sibling runs or waits (Sukwong and Kim, EuroSys 2011)
 *
 * A tick sees that a slice is over, as without HRTICK, which is off by default (scheduler_tick()
 * and entity_tick() of 6.18, 250 ticks a second in Debian), or a wakeup or a task that moves does.
 *
 * Left out: wake affinity, nodes, balancing by weight.
 */
#include <stdlib.h>

#include "fair/bandwidth.h"
#include "fair/eevdf.h"
#include "fair/class.h"
#include "fair/queue.h"
#include "fair/slice.h"
#include "kernel/core.h"
#include "kernel/idle.h"
#include "kernel/scx.h"
#include "machine/agenda.h"
#include "machine/cpu.h"

/* ---- who is where -------------------------------------------------------- */

static void note_waiting(struct sim *sim, u32 cpu)
{
	u64 bit = 1ULL << cpu % 64, *word = &sim->fair->overloaded[cpu / 64];

	if (sim->cpus[cpu].nr_running > 1)
		*word |= bit;
	else
		*word &= ~bit;
}

static void list(struct sim *sim, struct sim_task *task)
{
	struct sim_task **first = &sim->fair->first[task->cpu];

	task->prev = NULL;
	task->next = *first;
	if (*first)
		(*first)->prev = task;
	*first = task;
	note_waiting(sim, task->cpu);
}

static void unlist(struct sim *sim, struct sim_task *task)
{
	*(task->prev ? &task->prev->next : &sim->fair->first[task->cpu]) = task->next;
	if (task->next)
		task->next->prev = task->prev;
	task->next = task->prev = NULL;
	note_waiting(sim, task->cpu);
}

/* Does a sibling of @task run or wait on @cpu? */
static int stacked(struct sim *sim, const struct sim_task *task, u32 cpu)
{
	const struct sim_task *other;

	for (other = sim->fair->first[cpu]; other; other = other->next)
		if (other != task && other->config->guest == task->config->guest)
			return 1;
	return 0;
}

static int keeps_apart(const struct sim *sim, const struct sim_task *task)
{
	return sim->config->scheduler == SIM_BALANCE && task->config->guest != SIM_NONE;
}

static int may_go(struct sim *sim, const struct sim_task *task, u32 cpu)
{
	return sim_allowed(task, cpu) && !(keeps_apart(sim, task) && stacked(sim, task, cpu));
}

/* The CPU with least to do where @task may run, one of several at random. */
static u32 least_loaded(struct sim *sim, const struct sim_task *task)
{
	u32 i, best = SIM_NONE, ties = 0;

	for (i = 0; i < sim->config->cpus; i++) {
		u32 load = sim->cpus[i].nr_running;

		if (best != SIM_NONE && load > sim->cpus[best].nr_running)
			continue;
		if (!may_go(sim, task, i))
			continue;
		if (best == SIM_NONE || load < sim->cpus[best].nr_running)
			ties = 0;
		if (!sim_random(&sim->random, ++ties))
			best = i;
	}
	return best == SIM_NONE ? task->cpu : best;
}

static u32 select_cpu(struct sim *sim, struct sim_task *task, u64 wake_flags)
{
	int cpu;

	sim_decide(sim, sim->config->select_ns);
	if ((wake_flags & SCX_WAKE_FORK) || !task->started)
		return least_loaded(sim, task);
	/* ttwu_runnable(): it is in a queue still */
	if (task->entity->delayed)
		return task->cpu;
	cpu = idle_near(sim, task, task->cpu);
	if (cpu >= 0 && may_go(sim, task, cpu))
		return cpu;
	return may_go(sim, task, task->cpu) ? task->cpu : least_loaded(sim, task);
}

/* ---- in, out, next ------------------------------------------------------- */

static void enqueue(struct sim *sim, struct sim_task *task, u64 flags)
{
	struct sim_task *current = sim->cpus[task->cpu].current;

	(void)flags;
	sim_decide(sim, sim->config->enqueue_ns);
	cfs_update(sim, task->cpu);
	cfs_enqueue(sim, task, !task->started);
	list(sim, task);
	if (current && cfs_preempts(task, current))
		core_resched(sim, task->cpu);
	else if (current)
		/* who had nobody to share with had no end of its slice either */
		agenda_tick(sim, task->cpu, sim->class->next_tick(sim, task->cpu));
}

static void dequeue(struct sim *sim, struct sim_task *task, u64 flags)
{
	sim_decide(sim, sim->config->stopping_ns);
	cfs_update(sim, task->cpu);
	/* a task that exits is not delayed (DEQUEUE_SPECIAL) */
	cfs_dequeue(sim, task, flags & SCX_DEQ_SLEEP && task->config->role != SIM_CHAIN);
	unlist(sim, task);
}

/* Have @task, which waits, wait on @to. */
static void migrate(struct sim *sim, struct sim_task *task, u32 to)
{
	cfs_update(sim, task->cpu);
	cfs_update(sim, to);
	cfs_dequeue(sim, task, 0);
	unlist(sim, task);
	cpu_waiting(sim, task->cpu, -1);
	sim->cpus[task->cpu].nr_running--;
	note_waiting(sim, task->cpu);
	task->cpu = to;
	sim->cpus[to].nr_running++;
	cpu_waiting(sim, to, 1);
	cfs_enqueue(sim, task, 0);
	list(sim, task);
}

/* Take the first that waits on @from and may run on @to. */
static int take(struct sim *sim, u32 from, u32 to)
{
	struct sim_task *task;

	for (task = sim->fair->first[from]; task; task = task->next) {
		if (sim->cpus[from].current == task || !may_go(sim, task, to) || !cfs_may_run(task))
			continue;
		migrate(sim, task, to);
		return 1;
	}
	return 0;
}

/* Take a task from an overloaded CPU among @from to @past - 1, beginning behind @cpu. */
static int steal_in(struct sim *sim, u32 cpu, u32 from, u32 past)
{
	u32 i;

	for (i = 0; i < past - from; i++) {
		u32 victim = from + (cpu - from + 1 + i) % (past - from);

		if (!(victim % 64) && !sim->fair->overloaded[victim / 64] && victim + 63 < past) {
			i += 63;
			continue;
		}
		if ((sim->fair->overloaded[victim / 64] >> victim % 64 & 1) && victim != cpu &&
		    take(sim, victim, cpu))
			return 1;
	}
	return 0;
}

/* Every task is bound to one CPU: nobody needs to be looked for. */
static int nobody_moves(const struct sim *sim)
{
	return sim->config->scheduler == SIM_PINNED && sim->config->tasks == sim->bound;
}

static int steal(struct sim *sim, u32 cpu)
{
	u32 past, from = sim_cache(sim, cpu, &past);

	if (nobody_moves(sim))
		return 0;
	return steal_in(sim, cpu, from, past) ||
	       (past - from < sim->config->cpus && steal_in(sim, cpu - from, 0, sim->config->cpus));
}

static struct sim_task *pick(struct sim *sim, u32 id, struct sim_task *prev)
{
	struct sim_task *next;

	(void)prev;
	sim_decide(sim, sim->config->dispatch_ns);
	cfs_tick(sim, id);
	next = cfs_pick(sim, id);
	if (!next && steal(sim, id))
		next = cfs_pick(sim, id);
	return next;
}

static void put_prev(struct sim *sim, u32 cpu, struct sim_task *prev, struct sim_task *next)
{
	(void)sim;
	(void)cpu;
	cfs_set_next(prev, next);
}

static void set_next(struct sim *sim, u32 cpu, struct sim_task *next)
{
	sim->cpus[cpu].exec_start = sim->now;
	cfs_set_next(NULL, next);
}

static void idle(struct sim *sim, u32 cpu, int is_idle, int notify)
{
	(void)notify;
	idle_note(sim, cpu, is_idle);
}

static u64 next_tick(struct sim *sim, u32 cpu)
{
	u64 left = cfs_left(sim, cpu);

	return left == SIM_NEVER ? SIM_NEVER :
				   cpu_tick_from(sim, cpu, sim->cpus[cpu].exec_start + left);
}

static int tick(struct sim *sim, u32 cpu)
{
	(void)sim;
	(void)cpu;
	return 1; /* pick() brings everything up to date */
}

static int yield_to(struct sim *sim, struct sim_task *from, struct sim_task *to)
{
	if (!cfs_may_run(to))
		return 0;
	cfs_update(sim, from->cpu);
	cfs_update(sim, to->cpu);
	cfs_favour(sim, from, to);
	return 1;
}

/* ---- balancing, periods -------------------------------------------------- */

/* Look for a CPU that has two more than @id. */
static void balance(struct sim *sim, u32 id)
{
	const struct sim_config *config = sim->config;
	u32 past, from = sim_cache(sim, id, &past), i, busiest = id;

	agenda_timer(sim, 1 + id,
		     sim->now + config->balance_ns + sim_random(&sim->random, config->balance_ns));
	if (nobody_moves(sim))
		return;
	if (!sim_random(&sim->random, 8)) {
		from = 0;
		past = config->cpus;
	}
	for (i = from; i < past; i++)
		if (sim->cpus[i].nr_running > sim->cpus[busiest].nr_running)
			busiest = i;
	if (sim->cpus[busiest].nr_running < sim->cpus[id].nr_running + 2 || !take(sim, busiest, id))
		return;
	/* as enqueue(): a task that had its CPU alone had no end of its slice */
	if (!sim->cpus[id].current)
		core_resched(sim, id);
	else
		agenda_tick(sim, id, sim->class->next_tick(sim, id));
}

static void timer(struct sim *sim, u32 which)
{
	if (which <= sim->config->cpus) {
		sim->event.cpu = which - 1;
		balance(sim, which - 1);
	} else {
		sim->event.cpu = 0;
		cfs_refill(sim, sim->fair->limited[which]);
	}
}

static void init_task(struct sim *sim, struct sim_task *task, int fork)
{
	(void)sim;
	(void)fork;
	free(task->entity);
	task->entity = calloc(1, sizeof(*task->entity));
	if (!task->entity)
		abort();
	task->started = 0;
	task->entity->task = task;
	task->entity->weight = task->p.se.load.weight;
	task->entity->idle = task->config->idle;
}

static void exit_task(struct sim *sim, struct sim_task *task)
{
	(void)sim;
	(void)task;
}

static void start_groups(struct sim *sim)
{
	u32 i, timer = sim->config->cpus + 1;

	for (i = 0; i < sim->config->groups; i++) {
		sim->fair->shares[i].lag_cpu = SIM_NONE;
		if (sim->description->groups[i].quota_ns == SIM_NEVER || timer == SIM_TIMERS)
			continue;
		sim->fair->shares[i].timer = timer;
		sim->fair->limited[timer] = i;
		agenda_timer(sim, timer++, 0);
	}
}

static void start(struct sim *sim)
{
	u32 i;

	sim->fair = calloc(1, sizeof(*sim->fair));
	if (!sim->fair)
		abort();
	sim->fair->slice = slice_of_host(sim->config);
	sim->fair->shares = calloc(sim->config->groups, sizeof(*sim->fair->shares));
	if (!sim->fair->shares)
		abort();
	for (i = 0; i < sim->config->cpus; i++) {
		idle_note(sim, i, 1);
		agenda_timer(sim, 1 + i, sim_random(&sim->random, sim->config->balance_ns));
	}
	start_groups(sim);
	for (i = 0; i < sim->config->tasks; i++) {
		init_task(sim, &sim->tasks[i], 0);
		sim->bound += sim->tasks[i].p.nr_cpus_allowed == 1;
	}
}

static void finish(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->config->tasks; i++)
		free(sim->tasks[i].entity);
	cfs_free(sim);
	free(sim->fair->shares);
	free(sim->fair);
}

const struct sim_class fair_class = {
	.start = start,
	.init_task = init_task,
	.exit_task = exit_task,
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
	.finish = finish,
};
