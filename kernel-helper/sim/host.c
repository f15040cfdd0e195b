// SPDX-License-Identifier: Apache-2.0
/*
 * The host around a scheduler: CPUs that switch, idle and are interrupted, and the loop that
 * goes from event to event. Events, by number:
 *
 *   one a CPU    its switch is done, or its slice is over
 *   one a CPU    an interrupt arrives (kick): it chooses anew
 *   one a vCPU   it has done its work and halts; while it halts: its timer wakes it
 *   the scheduler's own timers
 */
#include <stdlib.h>

#include "sim.h"

static __u32 kick_event(const struct sim *sim, __u32 cpu)
{
	return sim->config->cpus + cpu;
}

static __u32 vcpu_event(const struct sim *sim, __u32 vcpu)
{
	return 2 * sim->config->cpus + vcpu;
}

void host_timer(struct sim *sim, __u32 which, __u64 when)
{
	sim_heap_set(&sim->heap, 2 * sim->config->cpus + sim->vcpu_count + which, when);
}

/* 0 to @below - 1; xorshift64* */
__u64 host_random(struct sim *sim, __u64 below)
{
	sim->random ^= sim->random >> 12;
	sim->random ^= sim->random << 25;
	sim->random ^= sim->random >> 27;
	return below ? (sim->random * 0x2545f4914f6cdd1dULL >> 11) % below : 0;
}

void host_list(struct sim_cpu *cpu, __u32 vcpu)
{
	if (cpu->listed == cpu->room) {
		cpu->room = cpu->room ? 2 * cpu->room : 16;
		cpu->list = realloc(cpu->list, cpu->room * sizeof(*cpu->list));
		if (!cpu->list)
			abort();
	}
	cpu->list[cpu->listed++] = vcpu;
}

/* Co-stop: the CPU idles though somebody waits for it. */
static void note_held(struct sim *sim, struct sim_cpu *cpu)
{
	int held = cpu->state == SIM_IDLE && cpu->waiting;

	if (held && cpu->held_since == SIM_NEVER) {
		cpu->held_since = sim->now;
	} else if (!held && cpu->held_since != SIM_NEVER) {
		sim->result->costop_ns += sim->now - cpu->held_since;
		cpu->held_since = SIM_NEVER;
	}
}

void host_waiting(struct sim *sim, __u32 cpu, int change)
{
	sim->cpus[cpu].waiting += change;
	note_held(sim, &sim->cpus[cpu]);
}

static void set_state(struct sim *sim, struct sim_cpu *cpu, __u32 state)
{
	__u64 ns = sim->now - cpu->since;

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

static void trace(struct sim *sim, __u32 cpu, __u32 guest)
{
	const struct sim_config *config = sim->config;
	__u64 start = sim->cpus[cpu].since;

	if (sim->now <= config->trace_from || start >= config->trace_to ||
	    sim->result->traces >= config->traces)
		return;
	sim->traces[sim->result->traces++] = (struct sim_segment){start, sim->now, cpu, guest};
}

/* All runnable siblings run; counted once since the first of them came on CPU. gang.c counts slots.
 */
static void note_together(struct sim *sim, struct sim_guest *guest)
{
	__u64 skew = sim->now - guest->began;

	if (sim->config->scheduler == SIM_GANG || guest->together || !guest->running ||
	    guest->ready & ~guest->running)
		return;
	guest->together = 1;
	guest->result->costarted++;
	guest->result->skew_ns += skew;
	if (skew > guest->result->skew_max_ns)
		guest->result->skew_max_ns = skew;
}

static void join(struct sim *sim, __u32 cpu)
{
	struct sim_vcpu *vcpu = &sim->vcpus[sim->cpus[cpu].current];
	struct sim_guest *guest = &sim->guests[vcpu->guest];
	__u64 halt;

	load_advance(sim, guest);
	if (!guest->running && sim->config->scheduler != SIM_GANG) {
		guest->began = sim->now;
		guest->together = 0;
		guest->result->starts++;
	}
	guest->running |= 1ULL << vcpu->index;
	note_together(sim, guest);
	halt = load_until_halt(guest, vcpu);
	if (halt != SIM_NEVER)
		sim_heap_set(&sim->heap, vcpu_event(sim, sim->cpus[cpu].current), sim->now + halt);
}

static void take_off(struct sim *sim, __u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	struct sim_vcpu *vcpu = &sim->vcpus[cpu->current];
	struct sim_guest *guest = &sim->guests[vcpu->guest];

	if (cpu->state == SIM_RUNNING) {
		load_advance(sim, guest);
		guest->running &= ~(1ULL << vcpu->index);
		vcpu->run_ns += sim->now - cpu->since;
		trace(sim, id, vcpu->guest);
		if (load_until_halt(guest, vcpu) != SIM_NEVER)
			sim_heap_set(&sim->heap, vcpu_event(sim, cpu->current), SIM_NEVER);
	}
	sim->class->stopping(sim, cpu->current);
	vcpu->state = SIM_READY;
	vcpu->ready_at = sim->now;
	cpu->current = SIM_NONE;
}

static void put_on(struct sim *sim, __u32 id, __u32 next)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	struct sim_vcpu *vcpu = &sim->vcpus[next];

	set_state(sim, cpu, SIM_SWITCHING);
	sim->result->switches++;
	sim->result->migrations += vcpu->started && vcpu->cpu != id;
	sim->guests[vcpu->guest].result->wait_ns += sim->now - vcpu->ready_at;
	vcpu->started = 1;
	vcpu->state = SIM_ON_CPU;
	vcpu->cpu = id;
	cpu->current = next;
	cpu->charged = sim->now;
	sim_heap_set(&sim->heap, id, sim->now + sim->config->switch_ns);
	sim->class->running(sim, next);
}

static void arm_slice(struct sim *sim, __u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	sim_heap_set(&sim->heap, id, cpu->slice_end > sim->now ? cpu->slice_end : sim->now);
}

/* What the kernel's schedule() does. */
static void choose(struct sim *sim, __u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	__u32 prev = cpu->current, next;

	sim->result->decisions++;
	next = sim->class->pick(sim, id, prev);
	if (next == prev && prev != SIM_NONE) {
		if (cpu->state == SIM_RUNNING)
			arm_slice(sim, id);
		return;
	}
	if (prev != SIM_NONE) {
		take_off(sim, id);
		sim->class->ready(sim, prev, 0);
	}
	if (next != SIM_NONE) {
		put_on(sim, id, next);
		return;
	}
	set_state(sim, cpu, SIM_IDLE);
	sim_heap_set(&sim->heap, id, SIM_NEVER);
}

void host_kick(struct sim *sim, __u32 cpu)
{
	__u32 event = kick_event(sim, cpu);

	sim->result->kicks++;
	if (sim->heap.when[event] == SIM_NEVER)
		sim_heap_set(&sim->heap, event, sim->now + sim->config->kick_ns);
}

void host_wake(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct sim_guest *guest = &sim->guests[vcpu->guest];

	if (vcpu->state != SIM_HALTED)
		return;
	load_advance(sim, guest);
	guest->ready |= 1ULL << vcpu->index;
	vcpu->state = SIM_READY;
	vcpu->ready_at = sim->now;
	sim->class->ready(sim, id, 1);
}

static void halt(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct sim_guest *guest = &sim->guests[vcpu->guest];
	__u32 cpu = vcpu->cpu, partner;
	__u64 sleep_ns;

	load_advance(sim, guest);
	partner = load_halt(sim, id, &sleep_ns);
	if (partner != SIM_NONE)
		host_wake(sim, partner);
	take_off(sim, cpu);
	vcpu->state = SIM_HALTED;
	guest->ready &= ~(1ULL << vcpu->index);
	note_together(sim, guest);
	sim->class->halted(sim, id);
	if (sleep_ns)
		sim_heap_set(&sim->heap, vcpu_event(sim, id), sim->now + sleep_ns);
	choose(sim, cpu);
}

static void cpu_timer(struct sim *sim, __u32 id)
{
	struct sim_cpu *cpu = &sim->cpus[id];

	if (cpu->state != SIM_SWITCHING) {
		choose(sim, id);
		return;
	}
	set_state(sim, cpu, SIM_RUNNING);
	arm_slice(sim, id);
	join(sim, id);
}

static void happen(struct sim *sim, __u32 event)
{
	__u32 cpus = sim->config->cpus;

	if (event < cpus)
		cpu_timer(sim, event);
	else if (event < 2 * cpus)
		choose(sim, event - cpus);
	else if (event >= 2 * cpus + sim->vcpu_count)
		sim->class->timer(sim, event - 2 * cpus - sim->vcpu_count);
	else if (sim->vcpus[event - 2 * cpus].state == SIM_HALTED)
		host_wake(sim, event - 2 * cpus);
	else
		halt(sim, event - 2 * cpus);
}

/* Close all accounts at the end. */
static void finish(struct sim *sim)
{
	__u32 i;

	sim->now = sim->config->duration_ns;
	for (i = 0; i < sim->config->cpus; i++) {
		struct sim_cpu *cpu = &sim->cpus[i];

		if (cpu->state == SIM_RUNNING) {
			sim->vcpus[cpu->current].run_ns += sim->now - cpu->since;
			trace(sim, i, sim->vcpus[cpu->current].guest);
		}
		cpu->waiting = 0;
		set_state(sim, cpu, cpu->state);
	}
	for (i = 0; i < sim->vcpu_count; i++)
		if (sim->vcpus[i].state == SIM_READY)
			sim->guests[sim->vcpus[i].guest].result->wait_ns +=
				sim->now - sim->vcpus[i].ready_at;
	for (i = 0; i < sim->config->guests; i++)
		load_finish(sim, &sim->guests[i]);
}

/* vCPUs start within 1 ms; of a pair that wakes each other one halts, and an odd one for ever. */
static void start(struct sim *sim)
{
	__u32 i;

	for (i = 0; i < sim->vcpu_count; i++) {
		const struct sim_vcpu *vcpu = &sim->vcpus[i];
		const struct sim_guest_config *guest = sim->guests[vcpu->guest].config;
		__u64 within = guest->load == SIM_DUTY ? guest->extra_ns : 1000000;

		if (guest->load == SIM_SLEEP &&
		    (vcpu->index & 1 || vcpu->index + 1 == guest->vcpus))
			continue;
		sim_heap_set(&sim->heap, vcpu_event(sim, i), host_random(sim, within));
	}
}

void host_loop(struct sim *sim)
{
	__u64 when;
	__u32 event;

	sim->class->start(sim);
	start(sim);
	for (;;) {
		event = sim_heap_pop(&sim->heap, &when);
		if (event == SIM_NONE || when >= sim->config->duration_ns)
			break;
		sim->now = when;
		sim->result->events++;
		happen(sim, event);
	}
	finish(sim);
	sim->class->finish(sim);
}
