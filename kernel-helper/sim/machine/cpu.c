// SPDX-License-Identifier: Apache-2.0
/* CPUs that switch, idle and are interrupted, and who is charged for what. */
#include <stdlib.h>

#include "machine/agenda.h"
#include "machine/cpu.h"
#include "machine/load.h"
#include "machine/ple.h"

/* Co-stop: the CPU idles though somebody waits for it. */
static void note_held(struct sim *sim, struct sim_cpu *cpu)
{
	int held = cpu->state == SIM_IDLE && cpu->waiting;

	if (held && cpu->held_since == SIM_NEVER) {
		cpu->held_since = sim->now;
	} else if (!held && cpu->held_since != SIM_NEVER) {
		u64 ns = sim->now - cpu->held_since;

		sim->result->costop_ns += ns;
		if (ns > sim->result->longest_costop_ns)
			sim->result->longest_costop_ns = ns;
		cpu->held_since = SIM_NEVER;
	}
}

void cpu_waiting(struct sim *sim, u32 cpu, int change)
{
	sim->cpus[cpu].waiting += change;
	note_held(sim, &sim->cpus[cpu]);
}

static void set_state(struct sim *sim, struct sim_cpu *cpu, u32 state)
{
	u64 ns = sim->now - cpu->since;

	if (cpu->state == SIM_IDLE)
		sim->result->idle_ns += ns;
	else if (cpu->state == SIM_SWITCHING)
		sim->result->switch_ns += ns;
	else
		sim->result->run_ns += ns;
	cpu->state = state;
	cpu->since = sim->now;
	note_held(sim, cpu);
}

static void trace(struct sim *sim, u32 cpu, u32 task)
{
	const struct sim_config *config = sim->config;
	u64 start = sim->cpus[cpu].since;

	if (sim->now <= config->trace_from || start >= config->trace_to ||
	    sim->result->traces >= config->traces)
		return;
	sim->answer->traces[sim->result->traces++] =
		(struct sim_segment){start, sim->now, cpu, task};
}

/*
 * All runnable siblings run; counted once since the first of them came on CPU. Of a gang its
 * scheduler counts turns.
 */
void cpu_together(struct sim *sim, struct sim_guest *guest)
{
	u64 skew = sim->now - guest->began;

	if (guest->together || !guest->running || guest->ready & ~guest->running)
		return;
	guest->together = 1;
	guest->result->whole++;
	guest->result->skew_ns += skew;
	if (skew > guest->result->skew_max_ns)
		guest->result->skew_max_ns = skew;
}

/* The switch is done: who is on @cpu makes progress. */
void cpu_join(struct sim *sim, u32 id)
{
	struct sim_task *task = sim->cpus[id].current;
	struct sim_guest *guest = sim_guest_of(sim, task);

	set_state(sim, &sim->cpus[id], SIM_RUNNING);
	task->since = sim->now;
	if (task->state != SIM_ON_CPU)
		abort();
	if (task->left != SIM_NEVER)
		agenda_task(sim, task, sim->now + task->left);
	if (!guest)
		return;
	load_advance(sim, guest);
	if (!guest->running) {
		guest->began = sim->now;
		guest->together = 0;
		guest->result->starts++;
	}
	guest->running |= (sim_mask)1 << task->config->index;
	cpu_together(sim, guest);
	ple_arm(sim, task);
}

/* The task on @cpu makes no more progress. */
void cpu_leave(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	struct sim_task *task = cpu->current;
	struct sim_guest *guest = sim_guest_of(sim, task);
	u64 ns = sim->now - cpu->since;

	if (cpu->state != SIM_RUNNING)
		return;
	task->result->run_ns += ns;
	trace(sim, id, task->id);
	if (task->left != SIM_NEVER) {
		u64 done = sim->now - task->since;

		/* what it does then may have had to wait for what its CPU is at (race.c) */
		task->left -= done < task->left ? done : task->left;
		agenda_task(sim, task, SIM_NEVER);
	}
	set_state(sim, cpu, SIM_SWITCHING);
	if (!guest)
		return;
	load_advance(sim, guest);
	guest->running &= ~((sim_mask)1 << task->config->index);
	if (guest->config->ple)
		agenda_spin(sim, task, SIM_NEVER);
}

static void pay(struct sim *sim, u32 id, u64 beside)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	agenda_done(sim, id, sim->now + beside + cpu->debt);
	cpu->debt = 0;
}

/* Put @next on @id, NULL: let it idle. Nobody is on it. */
void cpu_switch(struct sim *sim, u32 id, struct sim_task *next)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	struct sim_guest *guest;

	cpu->current = next;
	if (!next) {
		agenda_done(sim, id, SIM_NEVER);
		set_state(sim, cpu, SIM_IDLE);
		return;
	}
	set_state(sim, cpu, SIM_SWITCHING);
	sim->result->switches++;
	next->result->switches++;
	next->result->wait_ns += sim->now - next->ready_at;
	next->state = SIM_ON_CPU;
	guest = sim_guest_of(sim, next);
	if (guest) {
		load_advance(sim, guest);
		guest->on |= (sim_mask)1 << next->config->index;
	}
	pay(sim, id, sim->config->switch_ns);
}

/* The task on @cpu stops for as long as the decisions made there take. */
void cpu_pause(struct sim *sim, u32 id)
{
	cpu_leave(sim, id);
	sim->cpus[id].current->ready_at = sim->now;
	pay(sim, id, 0);
}

/* The first tick of @id that comes at @from or later, and not before now. */
u64 cpu_tick_from(const struct sim *sim, u32 id, u64 from)
{
	u64 tick = sim->config->tick_ns, phase = sim->cpus[id].tick_phase;

	if (from <= sim->now)
		from = sim->now + 1;
	return from <= phase ? phase : phase + (from - phase + tick - 1) / tick * tick;
}

/* Close all accounts at the end. */
void cpu_finish(struct sim *sim)
{
	u32 i;

	sim->now = sim->config->duration_ns;
	for (i = 0; i < sim->config->cpus; i++) {
		struct sim_cpu *cpu = &sim->cpus[i];

		if (cpu->state == SIM_RUNNING)
			cpu_leave(sim, i);
		cpu->waiting = 0;
		set_state(sim, cpu, cpu->state);
	}
	for (i = 0; i < sim->config->tasks; i++) {
		struct sim_task *task = &sim->tasks[i];
		u64 ns = sim->now - task->ready_at;

		if (task->state != SIM_READY)
			continue;
		task->result->wait_ns += ns;
		if (ns > task->result->longest_wait_ns)
			task->result->longest_wait_ns = ns;
	}
}
