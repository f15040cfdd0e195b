/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keeping foreign guests off the cores of a strict gang.
 *
 * The row says who owns a core, but CPUs learn of a new row one after the other, and one of them
 * may still run, or be about to run, somebody of the row before. So a CPU claims for a party
 * before it runs one of its tasks, then looks at the claims of its core: both are full barriers,
 * so of two CPUs at least the second sees the first. Who may not share steps back, and stays idle
 * until the other one's claim changes, which kicks it.
 *
 * Kernel threads claim nothing: they belong to no guest. Ordinary tasks do: the vCPUs of a guest
 * that is not marked are among them. While no gang of the domain is strict, none of this is done.
 */
#ifndef GANG_STRICT_BPF_H
#define GANG_STRICT_BPF_H

#include "gang_slot.bpf.h"

#define CORE_CPUS 8 /* threads of a core, at most */

/* The CPU behind the lowest column of @columns, which must not be empty. */
static u32 first_cpu(const struct gang_domain *domain, u64 columns)
{
	u32 column = gang_popcount((columns & -columns) - 1);

	GANG_FORGET(column);
	return cpu_at(domain, column & (GANG_DOMAIN_CPUS - 1));
}

/* The other columns of this CPU's core. */
static u64 beside(const struct gang_slot *slot, const struct gang_cpu *self)
{
	u32 column = self->column & (GANG_DOMAIN_CPUS - 1);

	return slot->core[column] & ~column_bit(column);
}

static bool core_refuses(u64 fellows, const struct gang_domain *domain, u32 party)
{
	u32 i;

	bpf_for(i, 0, CORE_CPUS) {
		u32 claim, cpu;

		if (!fellows)
			break;
		cpu = first_cpu(domain, fellows);
		fellows &= fellows - 1;
		claim = cpu == NO_CPU ? NOBODY : *(volatile u32 *)&cpu_of(cpu)->claim;
		if (claim != NOBODY && !gang_may_share(gang_of(claim), gang_of(party)))
			return true;
	}
	return false;
}

/* This CPU claims for @party from now on, or for NOBODY: whoever waits for that looks again. */
__noinline int claim_for(u32 cpu, u32 party)
{
	struct gang_cpu *self = cpu_of(cpu);
	u32 index = self->domain, i;
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u64 fellows = beside(slot_of(index), self);

	if (!domain || __sync_lock_test_and_set(&self->claim, party) == party)
		return 0;
	bpf_for(i, 0, CORE_CPUS) {
		u32 fellow;

		if (!fellows)
			break;
		fellow = first_cpu(domain, fellows);
		fellows &= fellows - 1;
		if (fellow != NO_CPU && __sync_lock_test_and_set(&cpu_of(fellow)->waits, 0))
			wake(fellow);
	}
	return 0;
}

/* The task that dispatch() claimed for, if any, is not going to come. */
static void unclaim(u32 cpu, struct gang_cpu *self)
{
	self->choosing = 0;
	claim_for(cpu, NOBODY);
}

/* May @cpu run a task of @party now? If not it has to stay idle; it is kicked when it may. */
__noinline int claim_core(u32 cpu, u32 party)
{
	struct gang_cpu *self = cpu_of(cpu);
	u32 index = self->domain;
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u64 fellows = beside(slot_of(index), self);

	if (!domain)
		return true;
	claim_for(cpu, party);
	self->choosing = 1;
	if (!core_refuses(fellows, domain, party))
		return true;
	__sync_lock_test_and_set(&self->waits, 1);
	if (!core_refuses(fellows, domain, party))
		return true;
	unclaim(cpu, self);
	count(core_waits);
	note_decision(GANG_DECISION_CORE_WAIT, index, party);
	return false;
}

/*
 * A task starts on @cpu: what is claimed is what runs. It may not have come through dispatch(),
 * as one that a higher class had preempted; then it may be beside somebody it should not.
 */
__noinline int claim_running(u32 cpu, u32 party)
{
	struct gang_cpu *self = cpu_of(cpu);
	u32 index = self->domain;
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);

	self->choosing = 0;
	claim_for(cpu, party);
	if (domain && party != NOBODY && core_refuses(beside(slot_of(index), self), domain, party))
		count(core_shared);
	return 0;
}

/* A task left @cpu. dispatch() has been here before us and claimed for the next one, if it did. */
static void claim_stopping(u32 cpu, struct gang_cpu *self)
{
	if (self->choosing)
		self->choosing = 0;
	else
		claim_for(cpu, NOBODY);
}

#endif /* GANG_STRICT_BPF_H */
