// SPDX-License-Identifier: Apache-2.0
/*
 * The loop that goes from event to event. Of events there are, by number:
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
#include "race.h"

#define SAME_MOMENT 1000000U

enum { CPU_DONE, CPU_KICK, CPU_TICK, CPU_FLUSH, CPU_EVENTS };
enum { TASK_DONE, TASK_WOKEN, TASK_SPUN, TASK_EVENTS };

static u32 cpu_event(const struct sim *sim, u32 kind, u32 cpu)
{
	return kind * sim->config->cpus + cpu;
}

static u32 task_event(const struct sim *sim, u32 kind, u32 task)
{
	return CPU_EVENTS * sim->config->cpus + kind * sim->config->tasks + task;
}

static u32 timer_event(const struct sim *sim, u32 which)
{
	return task_event(sim, TASK_EVENTS, which);
}

/* How many there may be. */
u32 host_events(const struct sim *sim)
{
	return timer_event(sim, SIM_DAEMON + 1);
}

void host_timer(struct sim *sim, u32 which, u64 when)
{
	sim_heap_set(&sim->heap, timer_event(sim, which), when);
}

int host_timer_armed(const struct sim *sim, u32 which)
{
	return sim->heap.when[timer_event(sim, which)] != SIM_NEVER;
}

void host_task_at(struct sim *sim, const struct sim_task *task, u64 when)
{
	sim_heap_set(&sim->heap, task_event(sim, TASK_DONE, task->id), when);
}

void host_wake_at(struct sim *sim, const struct sim_task *task, u64 when)
{
	sim_heap_set(&sim->heap, task_event(sim, TASK_WOKEN, task->id), when);
}

void host_ple_at(struct sim *sim, const struct sim_task *task, u64 when)
{
	u32 event = task_event(sim, TASK_SPUN, task->id);

	/* the exit that is due first is */
	if (when == SIM_NEVER || when < sim->heap.when[event])
		sim_heap_set(&sim->heap, event, when);
}

void host_flush_at(struct sim *sim, u32 cpu, u64 when)
{
	u32 event = cpu_event(sim, CPU_FLUSH, cpu);

	if (when < sim->heap.when[event])
		sim_heap_set(&sim->heap, event, when);
}

/* The next tick of @cpu that matters; SIM_NEVER: none does. */
void host_tick_at(struct sim *sim, u32 cpu, u64 when)
{
	sim_heap_set(&sim->heap, cpu_event(sim, CPU_TICK, cpu), when);
}

/* @cpu chooses anew, @after ns from now; SIM_NEVER: it just did. */
void host_kick(struct sim *sim, u32 cpu, u64 after)
{
	u32 event = cpu_event(sim, CPU_KICK, cpu);

	if (after == SIM_NEVER)
		sim_heap_set(&sim->heap, event, SIM_NEVER);
	else if (sim->now + after < sim->heap.when[event])
		sim_heap_set(&sim->heap, event, sim->now + after);
}

/* @cpu has switched, or done what it had to do beside; SIM_NEVER: it has nothing to do. */
void host_done_at(struct sim *sim, u32 cpu, u64 when)
{
	sim_heap_set(&sim->heap, cpu_event(sim, CPU_DONE, cpu), when);
}

static void task_happens(struct sim *sim, u32 event)
{
	struct sim_task *task = &sim->tasks[event % sim->config->tasks];
	u32 kind = event / sim->config->tasks;

	sim->event.cpu = task->cpu;
	if (kind == TASK_SPUN)
		core_spin(sim, task);
	else if (kind == TASK_WOKEN)
		core_activate(sim, task, task->wake_flags);
	else if (task->state == SIM_HALTED)
		core_wake(sim, task);
	else
		core_done(sim, task);
}

static void cpu_happens(struct sim *sim, u32 event)
{
	u32 cpu = event % sim->config->cpus;

	sim->event.cpu = cpu;
	switch (event / sim->config->cpus) {
	case CPU_DONE:
		host_done(sim, cpu);
		break;
	case CPU_KICK:
		host_kicked(sim, cpu);
		break;
	case CPU_TICK:
		core_tick(sim, cpu);
		break;
	case CPU_FLUSH:
		ext_flush(sim, cpu);
		break;
	}
}

void host_happen(struct sim *sim, u32 event)
{
	u32 tasks = task_event(sim, 0, 0), timers = timer_event(sim, 0);
	struct sim_cpu *cpu;

	sim->event.spent = 0;
	if (event < tasks)
		cpu_happens(sim, event);
	else if (event < timers)
		task_happens(sim, event - tasks);
	else
		sim->class->timer(sim, event - timers);
	cpu = &sim->cpus[sim->event.cpu];
	if (sim->now + sim->event.spent > cpu->busy)
		cpu->busy = sim->now + sim->event.spent;
	if (cpu->state == SIM_IDLE)
		cpu->debt = 0; /* it had nothing else to do */
	else if (cpu->state == SIM_RUNNING && cpu->debt >= sim->config->switch_ns)
		host_pause(sim, sim->event.cpu);
}

/* The CPU that @event happens on. */
static u32 cpu_of(struct sim *sim, u32 event)
{
	u32 tasks = task_event(sim, 0, 0), timers = timer_event(sim, 0);

	if (event < tasks)
		return event % sim->config->cpus;
	if (event < timers)
		return sim->tasks[(event - tasks) % sim->config->tasks].cpu;
	return event == timers ? 0 : timer_cpu(sim, event - timers);
}

/* Two that wake or kick each other for nothing never come to an end. */
static int stands_still(struct sim *sim)
{
	if (sim->now != sim->moment) {
		sim->moment = sim->now;
		sim->moment_began = sim->result->events;
	}
	return sim->result->events - sim->moment_began > SAME_MOMENT;
}

void host_loop(struct sim *sim)
{
	u64 when;
	u32 event;

	while (!sim->answer->error[0]) {
		if (stands_still(sim))
			ext_error(sim, "no time passes: %u events at one moment", SAME_MOMENT);
		when = sim->heap.count ? sim->heap.when[sim->heap.order[0]] : SIM_NEVER;
		if (sim->race && race_resume(sim, when))
			continue;
		event = sim_heap_pop(&sim->heap, &when);
		if (event == SIM_NONE || when >= sim->config->duration_ns)
			break;
		sim->now = when;
		sim->result->events++;
		if (sim->race)
			race_event(sim, event, cpu_of(sim, event));
		else
			host_happen(sim, event);
	}
	race_stop(sim);
	host_finish(sim);
}
