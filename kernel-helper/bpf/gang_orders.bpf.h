/* SPDX-License-Identifier: GPL-2.0 */
/* Orders from user space, run with BPF_PROG_TEST_RUN once the scheduler is attached. */
#ifndef GANG_ORDERS_BPF_H
#define GANG_ORDERS_BPF_H

#include "gang_slot.bpf.h"

/* Have the CPU look for tasks that wait in queues of dissolved gangs, now. */
static void rescue_strays(u32 cpu)
{
	__sync_lock_test_and_set(&cpu_of(cpu)->strays, 1);
	interrupt(cpu);
}

static void ungroup(u32 domain)
{
	u32 id;

	bpf_for(id, 0, nr_cpus) {
		struct gang_cpu *cpu = cpu_of(id);

		if (!cpu->grouped || cpu->domain != domain)
			continue;
		cpu->grouped = 0;
		rescue_strays(id);
	}
}

/* From the lowest column of each one's core to the columns on it. */
static void map_cores(struct gang_slot *slot, const struct gang_domain *domain)
{
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS)
		slot->core[column & (GANG_DOMAIN_CPUS - 1)] = 0;
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		if (cpu_at(domain, column) != NO_CPU)
			slot->core[domain->core[column] & (GANG_DOMAIN_CPUS - 1)] |=
				column_bit(column);
	}
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		if (cpu_at(domain, column) != NO_CPU)
			slot->core[column & (GANG_DOMAIN_CPUS - 1)] =
				slot->core[domain->core[column] & (GANG_DOMAIN_CPUS - 1)];
	}
}

SEC("syscall")
int set_domain(struct gang_domain_args *args)
{
	u32 index = args->domain, column;
	struct gang_slot *slot = slot_of(index);
	struct slot_timer *timer = bpf_map_lookup_elem(&timers, &index);
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);

	if (!timer || !domain || domain->columns > GANG_DOMAIN_CPUS || !domain->slot_us)
		return -EINVAL;
	ungroup(index);
	map_cores(slot, domain);
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = cpu_at(domain, column);

		if (id == NO_CPU)
			break;
		cpu_of(id)->domain = index;
		cpu_of(id)->column = column;
		cpu_of(id)->grouped = 1;
	}
	slot->columns = domain->columns;
	slot->length = domain->slot_us * 1000ULL;
	epoch++;
	if (slot->columns)
		arm(timer, bpf_ktime_get_ns() + slot->length);
	return 0;
}

SEC("syscall")
int add_cpu(struct gang_cpu_args *args)
{
	return gang_search_add(&search, args->cpu, args->sibling, args->threads, args->new_llc);
}

static int list_gang(struct gang_slot *slot, u32 id)
{
	u32 i, entries = slot->gangs;

	bpf_for(i, 0, entries & (2 * GANG_DOMAIN_GANGS - 1))
		if (slot->list[i & (GANG_DOMAIN_GANGS - 1)] == id)
			return 0;
	if (entries >= GANG_DOMAIN_GANGS)
		return -ENOSPC;
	slot->list[entries & (GANG_DOMAIN_GANGS - 1)] = id;
	slot->gangs = entries + 1;
	return 0;
}

static int create_queues(const struct gang_domain *domain, u32 gang, u64 columns)
{
	u32 column;
	s32 err;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		if (!(columns & column_bit(column)))
			continue;
		err = scx_bpf_create_dsq(queue_of(gang, cpu_at(domain, column)), -1);
		if (err && err != -EEXIST) /* an earlier gang had this number */
			return err;
	}
	return 0;
}

/* While no gang of a domain is strict, nobody asks what the rest of his core does. */
static void look_for_strict(struct gang_slot *slot)
{
	u32 i, strict = 0;

	bpf_for(i, 0, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1)) {
		if (gang_is_strict(gang_of(slot->list[i & (GANG_DOMAIN_GANGS - 1)])))
			strict = 1;
	}
	slot->strict = strict;
}

static void dissolve(struct gang_state *gang, const struct gang_domain *domain)
{
	u32 column;

	gang->mode = GANG_MODE_OFF;
	epoch++;
	look_for_strict(slot_of(gang->domain));
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 cpu = cpu_at(domain, column);

		if (cpu != NO_CPU && gang->columns & column_bit(column))
			rescue_strays(cpu);
	}
}

/* Members that have not left the queues since their gang was dissolved wait again. */
static void find_ready(struct gang_state *gang, u32 id, const struct gang_domain *domain)
{
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 cpu = cpu_at(domain, column);

		if (cpu != NO_CPU && (gang->columns & column_bit(column)) &&
		    scx_bpf_dsq_nr_queued(queue_of(id, cpu)) > 0)
			__sync_fetch_and_or(&gang->ready, column_bit(column));
	}
}

SEC("syscall")
int set_gang(struct gang_args *args)
{
	u32 id = args->gang, index = args->domain;
	struct gang_state *gang = gang_of(id);
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u64 columns = args->columns;
	int err;

	if (!id || id >= GANG_MAX_GANGS || !domain ||
	    (columns && columns >> (domain->columns - 1) >> 1))
		return -EINVAL;
	if (args->mode == GANG_MODE_OFF) {
		dissolve(gang, domain);
		note_decision(GANG_DECISION_DISSOLVED, index, id);
		return 0;
	}
	err = create_queues(domain, id, columns);
	if (!err)
		err = list_gang(slot_of(index), id);
	if (err)
		return err;
	if (gang->mode == GANG_MODE_OFF) { /* a number may have belonged to another guest */
		gang->ready = 0;
		gang->seen = 0;
		gang->running = 0;
		gang->used = 0;
		gang->vtime = slot_of(index)->vclock;
	}
	asked_weights[gang_index(id)] = args->weight;
	gang_set_up(slot_of(index), gang, args);
	find_ready(gang, id, domain);
	look_for_strict(slot_of(index));
	epoch++;
	return 0;
}

#endif /* GANG_ORDERS_BPF_H */
