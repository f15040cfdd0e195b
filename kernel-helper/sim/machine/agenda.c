// SPDX-License-Identifier: Apache-2.0
/*
 * Everything that is going to happen, and when. Of events there are, by number:
 *
 *   one a CPU    its switch, or what it had to do beside, is done
 *   one a CPU    it is told to choose anew
 *   one a CPU    a tick that matters
 *   one a CPU    its kicks go out
 *   one a task   it has done its work; while it sleeps: its timer wakes it
 *   one a task   it was woken from another CPU, which now hears of it
 *   one a task   it has spun for long enough to exit
 *   the scheduler's own timers
 */
#include "machine/agenda.h"
#include "machine/heap.h"

/* The number of the event of this kind of a CPU, a task or a timer. */
static u32 number(const struct sim *sim, enum agenda_kind kind, u32 index)
{
	u32 cpus = sim->config->cpus;

	if (kind < AGENDA_DONE)
		return kind * cpus + index;
	return AGENDA_DONE * cpus + (kind - AGENDA_DONE) * sim->config->tasks + index;
}

/* Return the kind of @event; *@index: its CPU, task or timer. */
enum agenda_kind agenda_what(const struct sim *sim, u32 event, u32 *index)
{
	u32 cpus = sim->config->cpus, tasks = sim->config->tasks;
	u32 kind = AGENDA_DONE;

	if (event < AGENDA_DONE * cpus) {
		*index = event % cpus;
		return event / cpus;
	}
	event -= AGENDA_DONE * cpus;
	while (kind < AGENDA_TIMER && event >= tasks) {
		event -= tasks;
		kind++;
	}
	*index = event;
	return kind;
}

/* How many there may be. */
u32 agenda_size(const struct sim *sim)
{
	return number(sim, AGENDA_TIMER, SIM_DAEMON + 1);
}

void agenda_timer(struct sim *sim, u32 which, u64 when)
{
	heap_set(&sim->heap, number(sim, AGENDA_TIMER, which), when);
}

int agenda_timer_armed(const struct sim *sim, u32 which)
{
	return sim->heap.when[number(sim, AGENDA_TIMER, which)] != SIM_NEVER;
}

void agenda_task(struct sim *sim, const struct sim_task *task, u64 when)
{
	heap_set(&sim->heap, number(sim, AGENDA_DONE, task->id), when);
}

void agenda_wake(struct sim *sim, const struct sim_task *task, u64 when)
{
	heap_set(&sim->heap, number(sim, AGENDA_WOKEN, task->id), when);
}

void agenda_spin(struct sim *sim, const struct sim_task *task, u64 when)
{
	u32 event = number(sim, AGENDA_SPUN, task->id);

	/* the exit that is due first is */
	if (when == SIM_NEVER || when < sim->heap.when[event])
		heap_set(&sim->heap, event, when);
}

void agenda_flush(struct sim *sim, u32 cpu, u64 when)
{
	u32 event = number(sim, AGENDA_FLUSH, cpu);

	if (when < sim->heap.when[event])
		heap_set(&sim->heap, event, when);
}

/* The next tick of @cpu that matters; SIM_NEVER: none does. */
void agenda_tick(struct sim *sim, u32 cpu, u64 when)
{
	heap_set(&sim->heap, number(sim, AGENDA_TICK, cpu), when);
}

/* @cpu chooses anew, @after ns from now; SIM_NEVER: it just did. */
void agenda_kick(struct sim *sim, u32 cpu, u64 after)
{
	u32 event = number(sim, AGENDA_KICKED, cpu);

	if (after == SIM_NEVER)
		heap_set(&sim->heap, event, SIM_NEVER);
	else if (sim->now + after < sim->heap.when[event])
		heap_set(&sim->heap, event, sim->now + after);
}

/* Was @cpu told to choose anew, and has not heard of it yet? */
int agenda_kicked(const struct sim *sim, u32 cpu)
{
	return sim->heap.when[number(sim, AGENDA_KICKED, cpu)] != SIM_NEVER;
}

/* @cpu has switched, or done what it had to do beside; SIM_NEVER: it has nothing to do. */
void agenda_done(struct sim *sim, u32 cpu, u64 when)
{
	heap_set(&sim->heap, number(sim, AGENDA_SWITCHED, cpu), when);
}
