// SPDX-License-Identifier: Apache-2.0
/*
 * kernel/sched/core.c around a scheduling class, and the calls that KVM makes to it: schedule(),
 * try_to_wake_up(), wake_up_new_task(), the tick, resched_curr(), yield_to().
 */
#include "kernel/core.h"
#include "kernel/scx.h"
#include "machine/agenda.h"
#include "machine/cpu.h"
#include "machine/latency.h"
#include "machine/load.h"
#include "machine/ple.h"
#include "machine/race.h"

#define YIELD_TRIES 3 /* of kvm_vcpu_on_spin() */

/* The CPU of this event sends another one an interrupt, and pays for it. */
static void send(struct sim *sim)
{
	sim_spend(sim, sim->config->send_ns);
	sim->result->kicks++;
}

/*
 * The CPU is told to call schedule(): at once if that is where we are, else by an interrupt. As in
 * resched_curr() a CPU that was told before, and did not yet, gets no second one.
 */
void core_resched(struct sim *sim, u32 cpu)
{
	if (cpu == sim->event.cpu) {
		agenda_kick(sim, cpu, 0);
		return;
	}
	if (!agenda_kicked(sim, cpu) && !sim->cpus[cpu].need_resched)
		send(sim);
	sim->cpus[cpu].called = 1;
	agenda_kick(sim, cpu, sim->event.spent + sim->config->kick_ns);
}

static void put_off(struct sim *sim, struct sim_task *task)
{
	struct sim_guest *guest = sim_guest_of(sim, task);

	if (guest) {
		load_advance(sim, guest);
		guest->on &= ~((sim_mask)1 << task->config->index);
	}
	task->ready_at = sim->now;
	task->p.on_cpu = 0;
	if (task->state == SIM_HALTED)
		return;
	task->state = SIM_READY;
	cpu_waiting(sim, task->cpu, 1);
	ple_arm(sim, task);
}

/* Put @next in the place of @prev. As in the kernel @prev is queued before @next runs. */
static void change(struct sim *sim, u32 id, struct sim_task *prev, struct sim_task *next)
{
	if (prev) {
		cpu_leave(sim, id);
		put_off(sim, prev);
		sim->class->put_prev(sim, id, prev, next);
	} else {
		sim->class->idle(sim, id, 0, 1);
	}
	if (!next) {
		cpu_switch(sim, id, NULL);
		sim->class->idle(sim, id, 1, 1);
		return;
	}
	cpu_waiting(sim, id, -1);
	sim->result->migrations += next->started && next->p.wake_cpu != (int)id;
	next->result->migrations += next->started && next->p.wake_cpu != (int)id;
	next->started = 1;
	next->p.on_cpu = 1;
	next->p.wake_cpu = id;
	sim->class->set_next(sim, id, next);
	cpu_switch(sim, id, next);
}

/* schedule() on @id; @blocks: its current task goes to sleep. */
void core_schedule(struct sim *sim, u32 id, int blocks)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	struct sim_task *prev = cpu->current, *next;

	race_lock(sim, id);
	sim->event.cpu = id;
	sim->event.in_schedule = 1;
	sim->result->decisions++;
	if (blocks) {
		prev->state = SIM_HALTED;
		prev->p.on_rq = 0;
		cpu->nr_running--;
		sim->class->dequeue(sim, prev, SCX_DEQ_SLEEP);
	}
	cpu->called = 0;
	next = sim->class->pick(sim, id, prev);
	if (next != prev)
		change(sim, id, prev, next);
	else if (!next)
		sim->class->idle(sim, id, 1, 0);
	/* who asked before now has got it; another CPU that did meanwhile is heard next */
	cpu->need_resched = 0;
	if (!cpu->called)
		agenda_kick(sim, id, SIM_NEVER);
	agenda_tick(sim, id, cpu->current ? sim->class->next_tick(sim, id) : SIM_NEVER);
	sim->event.in_schedule = 0;
	race_unlock(sim, id);
	/* interrupts are off until the switch is done */
	if (cpu->kicking)
		agenda_flush(sim, id,
			     sim->now + sim->event.spent + (next != prev) * sim->config->switch_ns);
}

void core_tick(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	int over;

	if (!cpu->current)
		return;
	race_lock(sim, id);
	over = sim->class->tick(sim, id);
	race_unlock(sim, id);
	if (!over)
		agenda_tick(sim, id, sim->class->next_tick(sim, id));
	else if (cpu->state == SIM_SWITCHING)
		cpu->need_resched = 1;
	else
		core_schedule(sim, id, 0);
}

/* finish_task_switch() on @id, which has switched, or is done with what it had to do beside. */
void core_switched(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	latency_note(sim, cpu->current);
	cpu->current->ready_at = sim->now;
	cpu_join(sim, id);
	if (cpu->need_resched)
		core_schedule(sim, id, 0);
}

/* The interrupt that tells @id to choose anew has come. */
void core_kicked(struct sim *sim, u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	if (cpu->state == SIM_SWITCHING)
		cpu->need_resched = 1;
	else
		core_schedule(sim, id, 0);
}

/* ---- wakeups ------------------------------------------------------------- */

static u32 any_allowed(const struct sim *sim, const struct sim_task *task)
{
	u32 cpu;

	for (cpu = 0; cpu < sim->config->cpus; cpu++)
		if (sim_allowed(task, cpu))
			return cpu;
	return 0;
}

static u32 select_cpu(struct sim *sim, struct sim_task *task, u64 wake_flags, u64 *flags)
{
	u32 cpu = task->cpu;

	/* a task bound to one CPU, as a pinned vCPU, is not asked for */
	if (task->p.nr_cpus_allowed > 1) {
		cpu = sim->class->select_cpu(sim, task, wake_flags);
		*flags |= SCX_ENQ_CPU_SELECTED;
	}
	return cpu < sim->config->cpus && sim_allowed(task, cpu) ? cpu : any_allowed(sim, task);
}

/* ttwu_queue_cond(): is the other CPU told to do the rest of the wakeup itself? */
static int is_queued(const struct sim *sim, u32 cpu)
{
	if (sim->ops && !(sim->ops->flags & SCX_OPS_ALLOW_QUEUED))
		return 0;
	if (sim->event.cpu / sim->config->llc_cpus != cpu / sim->config->llc_cpus)
		return 1;
	return cpu != sim->event.cpu && !sim->cpus[cpu].nr_running;
}

/* The task is queued on its CPU; sim->event.cpu is who does it. */
void core_activate(struct sim *sim, struct sim_task *task, u64 flags)
{
	u32 cpu = task->cpu;

	race_lock(sim, cpu);
	cpu_waiting(sim, cpu, 1);
	sim->cpus[cpu].nr_running++;
	task->p.on_rq = 1;
	sim->class->enqueue(sim, task, flags);
	if (!sim->cpus[task->cpu].current)
		core_resched(sim, task->cpu);
	race_unlock(sim, cpu);
}

static void become_ready(struct sim *sim, struct sim_task *task)
{
	struct sim_guest *guest = sim_guest_of(sim, task);

	if (guest) {
		load_advance(sim, guest);
		guest->ready |= (sim_mask)1 << task->config->index;
	}
	task->state = SIM_READY;
	task->ready_at = sim->now;
	task->woken = 1;
}

/* try_to_wake_up() from sim->event.cpu */
void core_wake(struct sim *sim, struct sim_task *task)
{
	/* who is about to sleep is off its CPU first */
	race_lock(sim, task->cpu);
	race_unlock(sim, task->cpu);
	if (task->state != SIM_HALTED)
		return;
	become_ready(sim, task);
	task->wake_flags = SCX_ENQ_WAKEUP;
	task->cpu = select_cpu(sim, task, SCX_WAKE_TTWU, &task->wake_flags);
	if (is_queued(sim, task->cpu)) {
		send(sim);
		agenda_wake(sim, task, sim->now + sim->event.spent + sim->config->kick_ns);
	} else {
		core_activate(sim, task, task->wake_flags);
	}
	ple_arm(sim, task);
}

/* fork() by @parent, who is the task before @child in a chain. */
static void fork_task(struct sim *sim, struct sim_task *parent, struct sim_task *child)
{
	u64 flags = 0;

	child->p.pid = child->p.tgid = sim->next_pid++;
	child->cpu = parent->cpu;
	child->left = child->config->work_ns;
	sim->class->init_task(sim, child, 1);
	become_ready(sim, child);
	child->cpu = select_cpu(sim, child, SCX_WAKE_FORK, &flags);
	core_activate(sim, child, flags);
}

/* ---- what a task does when its work is done ------------------------------ */

/* The other place of a chain; of a guest's load in which vCPUs take turns: whose turn is next. */
static struct sim_task *partner(struct sim *sim, const struct sim_task *task)
{
	return &sim->tasks[task->config->index & 1 ? task->id - 1 : task->id + 1];
}

static void exit_chain(struct sim *sim, struct sim_task *task)
{
	u32 cpu = task->cpu;

	task->result->rounds++;
	fork_task(sim, task, partner(sim, task));
	core_schedule(sim, cpu, 1);
	sim->class->exit_task(sim, task);
}

static void block(struct sim *sim, struct sim_task *task, u64 sleep_ns)
{
	struct sim_guest *guest = sim_guest_of(sim, task);

	cpu_leave(sim, task->cpu);
	if (guest) {
		guest->ready &= ~((sim_mask)1 << task->config->index);
		cpu_together(sim, guest);
	}
	core_schedule(sim, task->cpu, 1);
	if (sleep_ns)
		agenda_task(sim, task, sim->now + sleep_ns);
}

/* @task, which runs, has done its work. */
void core_done(struct sim *sim, struct sim_task *task)
{
	struct sim_guest *guest = sim_guest_of(sim, task);
	u64 sleep_ns = task->config->sleep_ns;

	cpu_leave(sim, task->cpu);
	task->left = task->config->work_ns;
	if (task->config->role == SIM_CHAIN) {
		exit_chain(sim, task);
		return;
	}
	task->result->rounds++;
	if (task->config->role == SIM_MEMBER) {
		guest->result->rounds += guest->config->load == SIM_DUTY || task->config->index & 1;
		if (guest->config->load == SIM_SLEEP) {
			sleep_ns = 0;
			core_wake(sim, partner(sim, task));
		}
	}
	block(sim, task, sleep_ns);
}

/* ---- pause loop exits ---------------------------------------------------- */

/* 1: @to is going to run; 0: it is not; -1: neither CPU has anything else to run. */
static int yield_to(struct sim *sim, struct sim_task *from, struct sim_task *to)
{
	int yielded;

	if (sim->cpus[from->cpu].nr_running == 1 && sim->cpus[to->cpu].nr_running == 1)
		return -1;
	if (!to->p.on_rq || to->p.on_cpu)
		return 0;
	race_lock(sim, from->cpu);
	yielded = sim->class->yield_to(sim, from, to);
	race_unlock(sim, from->cpu);
	if (!yielded)
		return 0;
	if (from->cpu != to->cpu)
		core_resched(sim, to->cpu);
	return 1;
}

/* kvm_vcpu_on_spin(): the first sibling after the last one helped that can be. */
static int help_sibling(struct sim *sim, struct sim_task *task, struct sim_guest *guest)
{
	u32 vcpus = guest->config->vcpus, tries = YIELD_TRIES, i;

	for (i = 1; i <= vcpus; i++) {
		u32 index = (task->ple_turn + i) % vcpus;
		struct sim_task *sibling = &sim->tasks[guest->config->first + index];
		int got;

		if (!(ple_waiting(guest) >> index & 1) || sibling->state != SIM_READY)
			continue;
		got = yield_to(sim, task, sibling);
		if (got > 0) {
			task->ple_turn = index;
			return 1;
		}
		if (got < 0 && !--tries)
			break;
	}
	return 0;
}

/* @task has spun for as long as it may without an exit. */
void core_spin(struct sim *sim, struct sim_task *task)
{
	struct sim_guest *guest = sim_guest_of(sim, task);
	struct sim_cpu *cpu = &sim->cpus[task->cpu];

	load_advance(sim, guest);
	if (cpu->current != task || cpu->state != SIM_RUNNING || !ple_waiting(guest))
		return;
	if (load_until_spin(sim, task)) {
		ple_arm_one(sim, task);
		return;
	}
	guest->result->yields++;
	sim_spend(sim, sim->config->exit_ns);
	if (help_sibling(sim, task, guest)) {
		guest->result->yields_hit++;
		core_schedule(sim, task->cpu, 0);
	} else {
		ple_arm_one(sim, task);
	}
}
