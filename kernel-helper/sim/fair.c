// SPDX-License-Identifier: Apache-2.0
/*
 * What gangs are compared with: a queue a CPU, in each the earliest virtual deadline among those
 * that are eligible, that is, that had no more than their share (EEVDF; Stoica and
 * Abdel-Wahab 1995, Linux since 6.6). As there, whoever runs keeps the CPU until its slice is
 * over or it is eligible no more.
 *
 * A waking vCPU goes to an idle CPU (core/gang_search.h) or else where it was. A CPU about to
 * idle takes a waiting vCPU from another. Now and then each CPU looks for one that has two more
 * vCPUs than itself, in its LLC and, every eighth time, everywhere.
 *
 *   pinned    a vCPU never leaves the CPU it was placed on
 *   balance   a vCPU goes to no CPU where a sibling runs or waits (Sukwong and Kim, EuroSys 2011)
 *
 * Left out: cgroups within cgroups (a guest's weight is each vCPU's), wake affinity, NUMA, the
 * scheduler tick (slices end when they end, a little late at random).
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static __u32 weight_of(const struct sim *sim, const struct sim_vcpu *vcpu)
{
	return sim->guests[vcpu->guest].config->weight;
}

static __u64 request(const struct sim *sim, const struct sim_vcpu *vcpu)
{
	return gang_charge(sim->config->slice_ns, weight_of(sim, vcpu));
}

/* Charge who runs on @cpu. */
static void update(struct sim *sim, struct sim_cpu *cpu)
{
	struct sim_vcpu *vcpu;

	if (cpu->current == SIM_NONE)
		return;
	vcpu = &sim->vcpus[cpu->current];
	vcpu->vruntime += gang_charge(sim->now - cpu->charged, weight_of(sim, vcpu));
	cpu->charged = sim->now;
}

/* Mean virtual time of all that run or wait on @cpu; of an empty CPU the last known. */
static __u64 mean(struct sim *sim, struct sim_cpu *cpu)
{
	__u64 base = cpu->clock;
	__s64 sum = 0, weights = 0;
	__u32 i;

	for (i = 0; i <= cpu->listed; i++) {
		__u32 id = i < cpu->listed ? cpu->list[i] : cpu->current;
		const struct sim_vcpu *vcpu;

		if (id == SIM_NONE)
			continue;
		vcpu = &sim->vcpus[id];
		sum += (__s64)(vcpu->vruntime - base) * weight_of(sim, vcpu);
		weights += weight_of(sim, vcpu);
	}
	if (weights)
		cpu->clock = base + sum / weights;
	return cpu->clock;
}

static int eligible(const struct sim_vcpu *vcpu, __u64 clock)
{
	return (__s64)(vcpu->vruntime - clock) <= 0;
}

/* ---- who may run where -------------------------------------------------- */

static int stacked(struct sim *sim, const struct sim_vcpu *vcpu, __u32 cpu)
{
	const struct sim_guest_config *guest = sim->guests[vcpu->guest].config;
	__u32 i;

	for (i = 0; i < guest->vcpus; i++) {
		const struct sim_vcpu *sibling = &sim->vcpus[guest->first + i];

		if (sibling != vcpu && sibling->cpu == cpu && sibling->state != SIM_HALTED)
			return 1;
	}
	return 0;
}

static int may_run(struct sim *sim, const struct sim_vcpu *vcpu, __u32 cpu)
{
	if (sim->config->scheduler == SIM_PINNED)
		return vcpu->home == cpu;
	return sim->config->scheduler != SIM_BALANCE || !stacked(sim, vcpu, cpu);
}

static void allowed_set(struct sim *sim, const struct sim_vcpu *vcpu, struct gang_cpuset *allow)
{
	const struct sim_guest_config *guest = sim->guests[vcpu->guest].config;
	__u32 i;

	memset(allow, sim->config->scheduler == SIM_PINNED ? 0 : 0xff, sizeof(*allow));
	if (sim->config->scheduler == SIM_PINNED)
		allow->bits[vcpu->home / 64] |= 1ULL << vcpu->home % 64;
	if (sim->config->scheduler != SIM_BALANCE)
		return;
	for (i = 0; i < guest->vcpus; i++) {
		const struct sim_vcpu *sibling = &sim->vcpus[guest->first + i];

		if (sibling != vcpu && sibling->state != SIM_HALTED)
			allow->bits[sibling->cpu / 64] &= ~(1ULL << sibling->cpu % 64);
	}
}

static __u32 load_on(const struct sim_cpu *cpu)
{
	return cpu->listed + (cpu->current != SIM_NONE);
}

/* The CPU with least to do where @vcpu may run, one of several at random. */
static __u32 least_loaded(struct sim *sim, const struct sim_vcpu *vcpu)
{
	__u32 i, best = SIM_NONE, ties = 0;

	for (i = 0; i < sim->config->cpus; i++) {
		__u32 load = load_on(&sim->cpus[i]);

		if (best != SIM_NONE && load > load_on(&sim->cpus[best]))
			continue;
		if (!may_run(sim, vcpu, i))
			continue;
		if (best == SIM_NONE || load < load_on(&sim->cpus[best]))
			ties = 0;
		if (!host_random(sim, ++ties))
			best = i;
	}
	return best == SIM_NONE ? vcpu->home : best;
}

static __u32 place_woken(struct sim *sim, const struct sim_vcpu *vcpu)
{
	struct gang_cpuset allow;
	__u32 cpu;

	if (sim->config->scheduler == SIM_PINNED)
		return vcpu->home;
	if (!vcpu->started)
		return least_loaded(sim, vcpu);
	allowed_set(sim, vcpu, &allow);
	cpu = gang_find_idle(sim->search, vcpu->cpu, &allow, &sim->cost);
	if (cpu != GANG_NO_CPU)
		return cpu;
	return may_run(sim, vcpu, vcpu->cpu) ? vcpu->cpu : least_loaded(sim, vcpu);
}

/* ---- queues ------------------------------------------------------------- */

static void insert(struct sim *sim, __u32 id, __u32 cpu)
{
	sim->vcpus[id].cpu = cpu;
	host_list(&sim->cpus[cpu], id);
	host_waiting(sim, cpu, 1);
	gang_note_waiting(sim->search, cpu, sim->cpus[cpu].listed);
}

static void take_out(struct sim *sim, __u32 at, __u32 cpu)
{
	struct sim_cpu *self = &sim->cpus[cpu];

	self->list[at] = self->list[--self->listed];
	host_waiting(sim, cpu, -1);
	gang_note_waiting(sim->search, cpu, self->listed);
}

static void enqueue(struct sim *sim, __u32 id, int woken)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct sim_cpu *cpu;
	__u64 clock;

	if (!woken) {
		insert(sim, id, vcpu->cpu);
		return;
	}
	vcpu->cpu = place_woken(sim, vcpu);
	cpu = &sim->cpus[vcpu->cpu];
	update(sim, cpu);
	vcpu->vruntime = mean(sim, cpu) - vcpu->lag;
	vcpu->deadline = vcpu->vruntime + request(sim, vcpu);
	/* slices begin anywhere: nothing keeps the CPUs of a real host in step */
	if (!vcpu->started)
		vcpu->deadline -= host_random(sim, request(sim, vcpu));
	insert(sim, id, vcpu->cpu);
	clock = mean(sim, cpu);
	if (cpu->current == SIM_NONE ||
	    (!eligible(&sim->vcpus[cpu->current], clock) && eligible(vcpu, clock)))
		host_kick(sim, vcpu->cpu);
}

/* Have the vCPU that waits @at in @from's queue wait on @to, no better and no worse off. */
static void migrate(struct sim *sim, __u32 at, __u32 from, __u32 to)
{
	__u32 id = sim->cpus[from].list[at];
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	__u64 shift;

	update(sim, &sim->cpus[from]);
	update(sim, &sim->cpus[to]);
	shift = mean(sim, &sim->cpus[to]) - mean(sim, &sim->cpus[from]);
	take_out(sim, at, from);
	vcpu->vruntime += shift;
	vcpu->deadline += shift;
	insert(sim, id, to);
}

/* Take the first that waits on @from and may run on @to. */
static int take(struct sim *sim, __u32 from, __u32 to)
{
	__u32 i;

	for (i = 0; i < sim->cpus[from].listed; i++) {
		if (!may_run(sim, &sim->vcpus[sim->cpus[from].list[i]], to))
			continue;
		migrate(sim, i, from, to);
		return 1;
	}
	return 0;
}

static int steal(struct sim *sim, __u32 cpu)
{
	struct gang_victims victims = {0};
	__u32 victim;

	if (sim->config->scheduler == SIM_PINNED)
		return 0;
	for (;;) {
		victim = gang_next_victim(sim->search, cpu, &victims, &sim->cost);
		if (victim == GANG_NO_CPU)
			return 0;
		if (take(sim, victim, cpu))
			return 1;
	}
}

/* ---- choosing ----------------------------------------------------------- */

/* Where in @cpu's queue the next is: earliest deadline of the eligible; listed: who runs goes on.
 */
static __u32 earliest(struct sim *sim, struct sim_cpu *cpu, __u32 prev, __u64 clock)
{
	__u32 i, best = cpu->listed;
	__u64 deadline = ~0ULL;

	if (prev != SIM_NONE && eligible(&sim->vcpus[prev], clock))
		deadline = sim->vcpus[prev].deadline;
	for (i = 0; i < cpu->listed; i++) {
		const struct sim_vcpu *vcpu = &sim->vcpus[cpu->list[i]];

		if (vcpu->deadline >= deadline || !eligible(vcpu, clock))
			continue;
		deadline = vcpu->deadline;
		best = i;
	}
	return best;
}

static void set_slice(struct sim *sim, struct sim_cpu *cpu, __u32 id)
{
	const struct sim_vcpu *vcpu = &sim->vcpus[id];
	__s64 left = vcpu->deadline - vcpu->vruntime;

	cpu->slice_end = sim->now + host_random(sim, sim->config->jitter_ns);
	if (left > 0)
		cpu->slice_end += (__u64)left * weight_of(sim, vcpu) / GANG_WEIGHT_DEFAULT;
}

static __u32 pick(struct sim *sim, __u32 id, __u32 prev)
{
	struct sim_cpu *cpu = &sim->cpus[id];
	__u32 best, next;
	__u64 clock;

	update(sim, cpu);
	gang_note_idle(sim->search, id, 0);
	if (prev == SIM_NONE && !cpu->listed && !steal(sim, id)) {
		gang_note_idle(sim->search, id, 1);
		return SIM_NONE;
	}
	clock = mean(sim, cpu);
	if (prev != SIM_NONE) {
		struct sim_vcpu *vcpu = &sim->vcpus[prev];

		if ((__s64)(vcpu->vruntime - vcpu->deadline) >= 0)
			vcpu->deadline = vcpu->vruntime + request(sim, vcpu);
		else if (eligible(vcpu, clock))
			return prev;
	}
	best = earliest(sim, cpu, prev, clock);
	/* the mean is rounded down: of one alone it may be a moment behind */
	if (best == cpu->listed && prev == SIM_NONE)
		best = 0;
	if (best == cpu->listed) {
		set_slice(sim, cpu, prev);
		return prev;
	}
	next = cpu->list[best];
	set_slice(sim, cpu, next);
	take_out(sim, best, id);
	return next;
}

static void running(struct sim *sim, __u32 id)
{
	(void)sim;
	(void)id;
}

/* Remember what a vCPU was owed, at most two slices, for when it comes back. */
static void stopping(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct sim_cpu *cpu = &sim->cpus[vcpu->cpu];
	__s64 most = 2 * request(sim, vcpu);

	update(sim, cpu);
	if (load_until_halt(&sim->guests[vcpu->guest], vcpu) == SIM_NEVER)
		return;
	vcpu->lag = mean(sim, cpu) - vcpu->vruntime;
	if (vcpu->lag > most)
		vcpu->lag = most;
	if (vcpu->lag < -most)
		vcpu->lag = -most;
}

/* Look for a CPU that has two more than @id. */
static void balance(struct sim *sim, __u32 id)
{
	const struct sim_config *config = sim->config;
	__u32 from = id / config->llc_cpus * config->llc_cpus, to = from + config->llc_cpus;
	__u32 i, busiest = id;

	host_timer(sim, id, sim->now + config->balance_ns + host_random(sim, config->balance_ns));
	if (config->scheduler == SIM_PINNED)
		return;
	if (!host_random(sim, 8)) {
		from = 0;
		to = config->cpus;
	}
	for (i = from; i < to && i < config->cpus; i++)
		if (load_on(&sim->cpus[i]) > load_on(&sim->cpus[busiest]))
			busiest = i;
	if (load_on(&sim->cpus[busiest]) < load_on(&sim->cpus[id]) + 2 || !take(sim, busiest, id))
		return;
	if (sim->cpus[id].current == SIM_NONE)
		host_kick(sim, id);
}

static void start(struct sim *sim)
{
	const struct sim_config *config = sim->config;
	__u32 i;

	sim->search = calloc(1, sizeof(*sim->search));
	if (!sim->search)
		abort();
	for (i = 0; i < config->cpus; i++) {
		gang_search_add(sim->search, i, i % config->threads, config->threads,
				i % config->llc_cpus == 0);
		gang_note_idle(sim->search, i, 1);
		host_timer(sim, i, host_random(sim, config->balance_ns));
	}
	for (i = 0; i < sim->vcpu_count; i++)
		sim->vcpus[i].cpu = sim->vcpus[i].home;
}

static void finish(struct sim *sim)
{
	sim->result->search_lines = sim->cost.lines;
	free(sim->search);
}

const struct sim_class fair_class = {
	.start = start,
	.ready = enqueue,
	.pick = pick,
	.running = running,
	.stopping = stopping,
	.halted = running,
	.timer = balance,
	.finish = finish,
};
