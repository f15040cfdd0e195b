// SPDX-License-Identifier: Apache-2.0
/*
 * Gangs, decided by core/gang_core.h. This file is to the simulator what bpf/gang.bpf.c is to the
 * kernel, and its functions carry the names of those they stand for: the same questions in
 * the same order, charges included. Queue (gang, CPU) holds one member at most, so it is
 * the member's bit in ready and not in running.
 *
 * Left out: ordinary tasks, strays, changes of membership, several members on a column, yields. A
 * decision here happens at one moment, so a claim (gang_strict.bpf.h) is simply who is on a CPU.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MSEC 1000000ULL
/* sched_ext's own, for a task that goes on for want of others */
#define DEFAULT_SLICE (20 * MSEC)

static __u32 gang_id(const struct sim_vcpu *vcpu)
{
	return vcpu->guest + 1;
}

static struct sim_guest_result *stats_of(struct sim *sim, __u32 gang)
{
	return sim->guests[gang - 1].result;
}

static __u64 bit_of(const struct sim *sim, __u32 cpu)
{
	return 1ULL << sim->cpus[cpu].place.column;
}

static struct gang_slot *slot_on(struct sim *sim, __u32 cpu)
{
	return &sim->slots[sim->cpus[cpu].place.domain];
}

static __u32 owner_on(struct sim *sim, __u32 cpu)
{
	struct gang_slot *slot = slot_on(sim, cpu);

	return gang_owner(slot, slot->word, sim->cpus[cpu].place.column);
}

static void note_costart(struct sim *sim, __u32 id)
{
	struct gang_state *gang = &sim->gangs[id];
	struct gang_slot *slot = &sim->slots[gang->domain];
	struct sim_guest_result *stats = stats_of(sim, id);
	__u64 skew = sim->now - slot->opened;

	if (gang->costarted || gang->generation != gang_word_generation(slot->word) ||
	    !gang_all_running(gang))
		return;
	gang->costarted = 1;
	stats->costarted++;
	stats->skew_ns += skew;
	if (skew > stats->skew_max_ns)
		stats->skew_max_ns = skew;
}

static void charge(struct sim *sim, __u32 cpu)
{
	struct sim_cpu *self = &sim->cpus[cpu];
	__u64 ns;
	__u32 id;

	if (self->current == SIM_NONE)
		return;
	id = gang_id(&sim->vcpus[self->current]);
	ns = gang_member_charge(&sim->gangs[id], sim->now - self->charged);
	if (owner_on(sim, cpu) == id)
		sim->gangs[id].vtime += ns;
	else
		sim->gangs[id].filled += ns;
	self->charged = sim->now;
}

/* A slot ended: strict gangs pay for it. */
static void charge_slot(struct sim *sim, struct gang_slot *slot)
{
	__u32 column;

	for (column = 0; column < slot->columns; column++) {
		struct gang_state *gang = &sim->gangs[gang_owner(slot, slot->word, column)];

		if (gang_is_strict(gang) && (gang->taken & -gang->taken) == 1ULL << column)
			gang->vtime += gang_slot_charge(gang, sim->now - slot->opened);
	}
}

/* CPUs of a domain: a domain is cut from neighbouring CPUs, columns in their order. */
static __u32 first_cpu(const struct sim *sim, __u32 domain)
{
	__u32 cpu = 0;

	while (sim->cpus[cpu].place.domain != domain)
		cpu++;
	return cpu;
}

static int runs_other(const struct sim *sim, __u32 cpu, __u32 id)
{
	__u32 current = sim->cpus[cpu].current;

	return current != SIM_NONE && gang_id(&sim->vcpus[current]) != id;
}

static void start_row(struct sim *sim, struct gang_slot *slot, __u32 first)
{
	__u32 column;

	for (column = 0; column < slot->columns; column++) {
		__u32 id = gang_owner(slot, slot->word, column);
		struct gang_state *gang = &sim->gangs[id];

		if (!id)
			continue;
		if ((gang->columns & -gang->columns) == 1ULL << column) {
			stats_of(sim, id)->starts++;
			note_costart(sim, id);
		}
		if (gang_out_of_place(gang, column, runs_other(sim, first + column, id)))
			host_kick(sim, first + column);
	}
}

static void open_slot(struct sim *sim, __u32 domain)
{
	struct gang_slot *slot = &sim->slots[domain];
	__u16 generation = gang_word_generation(slot->word) + 1;
	__u32 first = first_cpu(sim, domain), column, served;

	charge_slot(sim, slot);
	for (column = 0; column < slot->columns; column++)
		charge(sim, first + column);
	served = gang_fill_row(slot, sim->gangs, domain, generation, 0, sim->now);
	sim->result->decisions++;
	slot->opened = sim->now;
	slot->word = gang_word(generation, served ? sim->now + slot->length : 0);
	if (!served)
		return;
	sim->result->slots++;
	start_row(sim, slot, first);
}

static void lead(struct sim *sim, __u32 domain, int early)
{
	if (early || gang_slot_over(sim->slots[domain].word, sim->now))
		open_slot(sim, domain);
}

static void on_deadline(struct sim *sim, __u32 domain)
{
	struct gang_slot *slot = &sim->slots[domain];
	__u64 deadline;

	lead(sim, domain, 0);
	deadline = gang_word_deadline(slot->word);
	host_timer(sim, domain, deadline > sim->now ? deadline : sim->now + slot->length);
}

static int row_wanted(struct sim *sim, struct gang_slot *slot)
{
	__u32 column;

	for (column = 0; column < slot->columns; column++) {
		__u32 id = gang_owner(slot, slot->word, column);

		if (id && gang_wants_slot(&sim->gangs[id], sim->now))
			return 1;
	}
	return 0;
}

static int spent(struct sim *sim, struct gang_slot *slot, __u32 owner)
{
	if (owner && gang_wants_slot(&sim->gangs[owner], sim->now))
		return 0;
	return !row_wanted(sim, slot);
}

/* The member of @gang that waits on @cpu. */
static __u32 queued(struct sim *sim, __u32 gang, __u32 cpu)
{
	struct sim_cpu *self = &sim->cpus[cpu];
	__u32 i;

	for (i = 0; i < self->listed; i++) {
		struct sim_vcpu *vcpu = &sim->vcpus[self->list[i]];

		if (gang_id(vcpu) == gang && vcpu->state == SIM_READY)
			return self->list[i];
	}
	return SIM_NONE;
}

static __u32 dispatch_owner(struct sim *sim, __u32 cpu, __u32 prev)
{
	struct gang_slot *slot = slot_on(sim, cpu);
	struct sim_cpu *self = &sim->cpus[cpu];
	__u32 owner = owner_on(sim, cpu), next;

	if (!owner)
		return SIM_NONE;
	if (prev != SIM_NONE && gang_id(&sim->vcpus[prev]) == owner) {
		self->slice_end = sim->now + gang_slot_left(slot->word, sim->now) + MSEC;
		return prev;
	}
	next = queued(sim, owner, cpu);
	self->slice_end = sim->now + slot->length + MSEC;
	return next;
}

static __u32 fill_with_gang(struct sim *sim, __u32 cpu)
{
	struct sim_cpu *self = &sim->cpus[cpu];
	__u64 best = ~0ULL;
	__u32 i, next = SIM_NONE;

	for (i = 0; i < self->listed; i++) {
		struct sim_vcpu *vcpu = &sim->vcpus[self->list[i]];
		const struct gang_state *gang = &sim->gangs[gang_id(vcpu)];
		__u64 filled = gang_filled(slot_on(sim, cpu), gang);

		if (vcpu->state != SIM_READY || filled >= best || gang_is_strict(gang))
			continue;
		best = filled;
		next = self->list[i];
	}
	self->slice_end = sim->now + slot_on(sim, cpu)->length + MSEC;
	if (next != SIM_NONE)
		gang_fill(slot_on(sim, cpu), &sim->gangs[gang_id(&sim->vcpus[next])]);
	return next;
}

/* The party on a CPU, GANG_OTHERS for nobody. */
static __u32 party_on(const struct sim *sim, __u32 cpu)
{
	__u32 current = sim->cpus[cpu].current;

	return current == SIM_NONE ? GANG_OTHERS : gang_id(&sim->vcpus[current]);
}

/* May @cpu run somebody of @party next to who is on the other CPUs of its core? */
static int claim_core(struct sim *sim, __u32 cpu, __u32 party)
{
	struct sim_cpu *self = &sim->cpus[cpu];
	__u64 core = slot_on(sim, cpu)->core[self->place.column];
	__u32 first = cpu - self->place.column, column;

	self->held_back = 0;
	for (column = 0; column < GANG_DOMAIN_CPUS; column++) {
		__u32 fellow = first + column;

		if (!(core >> column & 1) || fellow == cpu || sim->cpus[fellow].current == SIM_NONE)
			continue;
		if (!gang_may_share(&sim->gangs[party_on(sim, fellow)], &sim->gangs[party]))
			self->held_back = 1;
	}
	return !self->held_back;
}

/* Somebody leaves @cpu: who was held back by it looks again. */
static void unclaim(struct sim *sim, __u32 cpu)
{
	struct gang_slot *slot = slot_on(sim, cpu);
	struct sim_cpu *self = &sim->cpus[cpu];
	__u32 first = cpu - self->place.column, column;

	if (!slot->strict)
		return;
	for (column = 0; column < GANG_DOMAIN_CPUS; column++)
		if (slot->core[self->place.column] >> column & 1 &&
		    sim->cpus[first + column].held_back)
			host_kick(sim, first + column);
}

/* The owner of @cpu's column; leads first if the slot is over, or if it is spent. */
static __u32 owner_now(struct sim *sim, __u32 cpu, int early)
{
	struct gang_slot *slot = slot_on(sim, cpu);
	__u32 owner = owner_on(sim, cpu);

	if (early && !gang_slot_closed(slot->word) && spent(sim, slot, owner)) {
		sim->result->early_ends += !!owner;
		lead(sim, sim->cpus[cpu].place.domain, 1);
	} else {
		lead(sim, sim->cpus[cpu].place.domain, 0);
	}
	return owner_on(sim, cpu);
}

/* A filler, or else what ran before. */
static __u32 dispatch_filler(struct sim *sim, __u32 cpu, __u32 owner, __u32 prev)
{
	struct sim_cpu *self = &sim->cpus[cpu];
	__u32 next = fill_with_gang(sim, cpu);

	if (next != SIM_NONE) {
		sim->result->fillers += !!owner;
		return next;
	}
	if (prev == SIM_NONE || gang_is_strict(&sim->gangs[gang_id(&sim->vcpus[prev])]))
		return SIM_NONE;
	self->slice_end = sim->now + slot_on(sim, cpu)->length;
	return prev;
}

static __u32 dispatch_grouped(struct sim *sim, __u32 cpu, __u32 prev)
{
	int strict = slot_on(sim, cpu)->strict;
	__u32 owner = owner_now(sim, cpu, 0), next;

	if (strict && !claim_core(sim, cpu, owner))
		return SIM_NONE;
	next = dispatch_owner(sim, cpu, prev);
	if (next != SIM_NONE)
		return next;
	owner = owner_now(sim, cpu, 1);
	if (strict && !claim_core(sim, cpu, owner))
		return SIM_NONE;
	next = dispatch_owner(sim, cpu, prev);
	if (next != SIM_NONE || gang_is_strict(&sim->gangs[owner]))
		return next;
	return dispatch_filler(sim, cpu, owner, prev);
}

static __u32 dispatch(struct sim *sim, __u32 cpu, __u32 prev)
{
	__u32 next = dispatch_grouped(sim, cpu, prev);

	if (next != SIM_NONE && next != prev)
		host_waiting(sim, cpu, -1);
	return next;
}

/* runnable and enqueue in one; put back after it ran, it is enqueued only */
static void enqueue(struct sim *sim, __u32 id, int woken)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct gang_state *gang = &sim->gangs[gang_id(vcpu)];
	struct sim_cpu *cpu = &sim->cpus[vcpu->home];
	__u64 word = slot_on(sim, vcpu->home)->word;
	int current =
		cpu->current != SIM_NONE && gang_id(&sim->vcpus[cpu->current]) == gang_id(vcpu);

	if (woken) {
		if (!gang->ready)
			gang->last_slot = sim->now;
		gang_note_change(gang, sim->now);
		vcpu->woke = sim->now;
		vcpu->together = gang->together;
	}
	gang->ready |= bit_of(sim, vcpu->home);
	host_waiting(sim, vcpu->home, 1);
	if (!woken)
		return;
	if (owner_on(sim, vcpu->home) == gang_id(vcpu) && !gang_slot_over(word, sim->now) &&
	    !current && !gang_is_strict(gang) &&
	    !gang_waits_for(gang, &sim->gangs[party_on(sim, vcpu->home)]))
		host_kick(sim, vcpu->home);
	else if (gang_slot_closed(word) || cpu->state == SIM_IDLE)
		host_kick(sim, vcpu->home);
}

static void running(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct gang_state *gang = &sim->gangs[gang_id(vcpu)];
	__u32 owner = owner_on(sim, vcpu->cpu);

	gang->running |= bit_of(sim, vcpu->cpu);
	note_costart(sim, gang_id(vcpu));
	if (!owner || owner == gang_id(vcpu))
		return;
	if (gang_waits_for(&sim->gangs[owner], gang))
		sim->cpus[vcpu->cpu].slice_end = sim->now + GANG_FILLER_NS;
	else if (gang_out_of_place(&sim->gangs[owner], sim->cpus[vcpu->cpu].place.column, 0))
		host_kick(sim, vcpu->cpu);
}

static void stopping(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];

	charge(sim, vcpu->cpu);
	sim->gangs[gang_id(vcpu)].running &= ~bit_of(sim, vcpu->cpu);
	unclaim(sim, vcpu->cpu);
}

static void quiescent(struct sim *sim, __u32 id)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct gang_state *gang = &sim->gangs[gang_id(vcpu)];

	gang_note_change(gang, sim->now);
	gang_note_stint(gang, sim->now - vcpu->woke, gang->together - vcpu->together);
	gang->ready &= ~bit_of(sim, vcpu->home);
	note_costart(sim, gang_id(vcpu));
}

/* Columns, and which of them are on one core: neighbours. */
static void set_domains(struct sim *sim)
{
	__u32 threads = sim->config->threads, i;

	for (i = 0; i < sim->config->cpus; i++) {
		struct sim_place place = sim->cpus[i].place;
		struct gang_slot *slot = &sim->slots[place.domain];

		slot->columns++;
		slot->core[place.column] = ((1ULL << threads) - 1)
					   << place.column / threads * threads;
	}
}

static void set_gang(struct sim *sim, __u32 guest)
{
	const struct sim_guest_config *config = sim->guests[guest].config;
	struct gang_slot *slot = &sim->slots[config->domain];
	struct gang_args args = {
		.gang = guest + 1,
		.weight = config->weight,
		.domain = config->domain,
		.mode = config->mode,
	};
	__u32 i;

	for (i = 0; i < config->vcpus; i++)
		args.columns |= bit_of(sim, sim->vcpus[config->first + i].home);
	gang_set_up(slot, &sim->gangs[args.gang], &args);
	slot->list[slot->gangs++] = args.gang;
	slot->strict |= config->mode == GANG_MODE_STRICT;
}

static void start(struct sim *sim)
{
	const struct sim_config *config = sim->config;
	__u32 i;

	sim->gangs = calloc(GANG_MAX_GANGS, sizeof(*sim->gangs));
	sim->slots = calloc(GANG_MAX_DOMAINS, sizeof(*sim->slots));
	if (!sim->gangs || !sim->slots)
		abort();
	set_domains(sim);
	for (i = 0; i < sim->vcpu_count; i++) {
		struct sim_vcpu *vcpu = &sim->vcpus[i];

		vcpu->cpu = vcpu->home;
		host_list(&sim->cpus[vcpu->home], i);
	}
	for (i = 0; i < config->guests; i++)
		set_gang(sim, i);
	for (i = 0; i < config->domains; i++) {
		sim->slots[i].length = config->slot_ns;
		host_timer(sim, i, config->slot_ns);
	}
}

static void finish(struct sim *sim)
{
	free(sim->gangs);
	free(sim->slots);
}

const struct sim_class gang_class = {
	.start = start,
	.ready = enqueue,
	.pick = dispatch,
	.running = running,
	.stopping = stopping,
	.halted = quiescent,
	.timer = on_deadline,
	.finish = finish,
};
