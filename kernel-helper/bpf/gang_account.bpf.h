/* SPDX-License-Identifier: GPL-2.0 */
/* Who is charged for CPU time, and which slots count as co-started. */
#ifndef GANG_ACCOUNT_BPF_H
#define GANG_ACCOUNT_BPF_H

#include "gang_state.bpf.h"

static void charge_gang(u32 id, struct gang_cpu *cpu, u64 ns)
{
	struct gang_state *gang = gang_of(id);
	struct gang_slot *slot = slot_of(cpu->domain);
	struct gang_slot_stats *stats = bpf_map_lookup_elem(&gang_stats, &id);
	bool own = gang_owner(slot, word_of(slot), cpu->column) == id;

	/* a filler takes what nobody else wants: paid for, it would cost the gang its own slots */
	if (own)
		__sync_fetch_and_add(&cpu->used, ns);
	else
		__sync_fetch_and_add(&gang->filled, gang_filler_charge(gang, ns));
	__sync_fetch_and_add(&gang->paid, gang_payment(gang, ns));
	if (!stats)
		return;
	__sync_fetch_and_add(&stats->run_ns, ns);
	if (!own)
		__sync_fetch_and_add(&stats->filler_ns, ns);
}

/* An ordinary task is not runnable any more, or a gang's from now on. */
static void drop_load(struct gang_task *task)
{
	u32 load = task->load;

	if (!load)
		return;
	task->load = 0;
	__sync_fetch_and_add(&cpu_of(task->where)->load, -load);
}

/* An ordinary task is runnable on @cpu. */
static void count_load(struct gang_task *task, u32 cpu)
{
	if (task->load == task->weight && task->where == cpu)
		return;
	drop_load(task);
	task->load = task->weight;
	task->where = cpu;
	__sync_fetch_and_add(&cpu_of(cpu)->load, task->load);
}

static void charge_others(struct gang_cpu *cpu, u64 ns)
{
	struct gang_slot *slot = slot_of(cpu->domain);
	u32 column = cpu->column & (GANG_DOMAIN_CPUS - 1);

	__sync_fetch_and_add(&slot->others[column].vtime,
			     gang_others_charge(slot, column, ns, cpu->load));
	if (gang_owner(slot, word_of(slot), cpu->column))
		cpu->credit = cpu->credit > ns ? cpu->credit - ns : 0;
}

/* Charge whoever is on CPU @id up to @now; returns the ns charged. */
__noinline u64 charge(u32 id, u64 now)
{
	struct gang_cpu *cpu = cpu_of(id);
	u64 start = *(volatile u64 *)&cpu->start;
	u64 ns;

	if (!start || now <= start || __sync_val_compare_and_swap(&cpu->start, start, now) != start)
		return 0;
	ns = now - start;
	if (cpu->current == GANG_OTHERS) {
		if (cpu->grouped)
			charge_others(cpu, ns);
	} else if (cpu->current != NOBODY) {
		charge_gang(cpu->current, cpu, ns);
	}
	return ns;
}

/* A slot ended, and what everybody used of it is known: its gangs pay, and its length is counted.
 */
__noinline int charge_slot(u32 index, u64 now)
{
	struct gang_slot *slot = slot_of(index);
	u64 word = word_of(slot), elapsed = now - slot->opened;
	bool owned = false;
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = gang_owner(slot, word, column);

		if (!id)
			continue;
		owned = true;
		gang_pay(gang_of(id));
	}
	if (owned)
		count_bucket(slot_length, elapsed);
	return 0;
}

/* All runnable members of a gang were seen on CPU at once: note it, once a slot. */
__noinline int note_costart(u32 id, u64 now)
{
	struct gang_state *gang = gang_of(id);
	struct gang_slot *slot = slot_of(gang->domain);
	struct gang_slot_stats *stats;
	u64 skew = now > slot->opened ? now - slot->opened : 0;

	if (gang->costarted || gang->generation != gang_word_generation(word_of(slot)) ||
	    !gang_all_running(gang))
		return false;
	/* the last two members may come at once, each on its CPU: one of them counts */
	if (__sync_val_compare_and_swap(&gang->costarted, 0, 1))
		return false;
	stats = bpf_map_lookup_elem(&gang_stats, &id);
	if (!stats)
		return false;
	__sync_fetch_and_add(&stats->costarted, 1);
	__sync_fetch_and_add(&stats->skew_ns, skew);
	count_bucket(start_skew, skew);
	if (skew > stats->skew_max_ns)
		stats->skew_max_ns = skew;
	return true;
}

#endif /* GANG_ACCOUNT_BPF_H */
