// SPDX-License-Identifier: Apache-2.0
/* The loop that goes from event to event. */
#include "kernel/core.h"
#include "kernel/error.h"
#include "kernel/ext.h"
#include "kernel/timer.h"
#include "machine/agenda.h"
#include "machine/cpu.h"
#include "machine/heap.h"
#include "machine/race.h"
#include "run/loop.h"

#define SAME_MOMENT 1000000U

static void task_happens(struct sim *sim, enum agenda_kind kind, struct sim_task *task)
{
	sim->event.cpu = task->cpu;
	if (kind == AGENDA_SPUN)
		core_spin(sim, task);
	else if (kind == AGENDA_WOKEN)
		core_activate(sim, task, task->wake_flags);
	else if (task->state == SIM_HALTED)
		core_wake(sim, task);
	else
		core_done(sim, task);
}

static void cpu_happens(struct sim *sim, enum agenda_kind kind, u32 cpu)
{
	sim->event.cpu = cpu;
	if (kind == AGENDA_SWITCHED)
		core_switched(sim, cpu);
	else if (kind == AGENDA_KICKED)
		core_kicked(sim, cpu);
	else if (kind == AGENDA_TICK)
		core_tick(sim, cpu);
	else
		ext_flush(sim, cpu);
}

static void happen(struct sim *sim, u32 event)
{
	struct sim_cpu *cpu;
	u32 index, kind = agenda_what(sim, event, &index);

	sim->event.spent = 0;
	if (kind < AGENDA_DONE)
		cpu_happens(sim, kind, index);
	else if (kind < AGENDA_TIMER)
		task_happens(sim, kind, &sim->tasks[index]);
	else
		sim->class->timer(sim, index);
	cpu = &sim->cpus[sim->event.cpu];
	if (sim->now + sim->event.spent > cpu->busy)
		cpu->busy = sim->now + sim->event.spent;
	if (cpu->state == SIM_IDLE)
		cpu->debt = 0; /* it had nothing else to do */
	else if (cpu->state == SIM_RUNNING && cpu->debt >= sim->config->switch_ns)
		cpu_pause(sim, sim->event.cpu);
}

/* The CPU that @event happens on. */
static u32 cpu_of(struct sim *sim, u32 event)
{
	u32 index, kind = agenda_what(sim, event, &index);

	if (kind < AGENDA_DONE)
		return index;
	if (kind < AGENDA_TIMER)
		return sim->tasks[index].cpu;
	return index ? timer_cpu(sim, index) : 0;
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

void loop_run(struct sim *sim)
{
	u64 when;
	u32 event;

	while (!sim->answer->error[0]) {
		if (stands_still(sim))
			ext_error(sim, "no time passes: %u events at one moment", SAME_MOMENT);
		when = sim->heap.count ? sim->heap.when[sim->heap.order[0]] : SIM_NEVER;
		if (sim->race && race_resume(sim, when))
			continue;
		event = heap_pop(&sim->heap, &when);
		if (event == SIM_NONE || when >= sim->config->duration_ns)
			break;
		sim->now = when;
		sim->result->events++;
		if (sim->race)
			race_event(sim, event, cpu_of(sim, event), happen);
		else
			happen(sim, event);
	}
	race_stop(sim);
	cpu_finish(sim);
}
