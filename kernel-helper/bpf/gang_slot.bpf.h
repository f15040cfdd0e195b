/* SPDX-License-Identifier: GPL-2.0 */
/* Leading: closing one slot, filling the next row, interrupting the CPUs out of place. */
#ifndef GANG_SLOT_BPF_H
#define GANG_SLOT_BPF_H

#include "gang_push.bpf.h"

static u32 others_on(struct gang_cpu *cpu, u32 id)
{
	s32 queued = scx_bpf_dsq_nr_queued(queue_of(GANG_OTHERS, id));

	return (queued > 0 ? queued : 0) + (cpu->current == GANG_OTHERS);
}

/* The CPU behind a column, NO_CPU where the domain has none. */
static u32 cpu_at(const struct gang_domain *domain, u32 column)
{
	return column < domain->columns ? domain->cpu[column & (GANG_DOMAIN_CPUS - 1)] : NO_CPU;
}

/* Close the accounts of the slot that ends; returns how many ordinary tasks want a CPU. */
__noinline u32 settle(u32 index, u64 now)
{
	struct gang_slot *slot = slot_of(index);
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u64 refill = (now - slot->opened) >> OTHERS_SHARE_SHIFT;
	u32 column, others = 0;

	if (!domain)
		return 0;
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = cpu_at(domain, column);
		struct gang_cpu *cpu;

		if (id == NO_CPU)
			break;
		cpu = cpu_of(id);
		charge(id, now);
		cpu->credit += refill;
		if (cpu->credit > OTHERS_SLICE)
			cpu->credit = OTHERS_SLICE;
		others += others_on(cpu, id);
	}
	if (others && !slot->others)
		slot->others_last = now;
	slot->others = others;
	return others;
}

/* Is somebody on @cpu that is not of gang @id? */
static bool runs_other(const struct gang_cpu *cpu, u32 id)
{
	return cpu->current != NOBODY && cpu->current != id;
}

/* The row is published: interrupt the CPUs that do not run their owner, and only those. */
static void start_row(struct gang_slot *slot, const struct gang_domain *domain, u64 now)
{
	u64 word = word_of(slot);
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 cpu = cpu_at(domain, column);
		u32 id = gang_owner(slot, word, column);
		struct gang_state *gang = gang_of(id);
		struct gang_slot_stats *stats;

		if (cpu == NO_CPU)
			break;
		if (!id)
			continue;
		if ((gang->columns & -gang->columns) == column_bit(column)) {
			stats = bpf_map_lookup_elem(&gang_stats, &id);
			if (stats)
				stats->slots++;
			note_costart(id, now);
		}
		if (gang_out_of_place(gang, column, runs_other(cpu_of(cpu), id))) {
			interrupt(cpu);
			count(kicks);
		}
	}
}

/* An "others" slot: interrupt the CPUs where an ordinary task waits for a gang. */
static void start_others(const struct gang_domain *domain)
{
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = cpu_at(domain, column);
		struct gang_cpu *cpu;

		if (id == NO_CPU)
			break;
		cpu = cpu_of(id);
		if (cpu->current == GANG_OTHERS || !others_on(cpu, id))
			continue;
		interrupt(id);
		count(kicks);
	}
}

__noinline u32 fill_row(u32 index, u32 generation, u32 others, u64 now)
{
	return gang_fill_row(slot_of(index), gangs, index, generation, others > 0, now);
}

__noinline int contested(u32 index)
{
	return gang_is_contested(slot_of(index), gangs);
}

static void open_slot(struct gang_slot *slot, const struct gang_domain *domain, u32 index, u64 now)
{
	u16 generation = gang_word_generation(slot->word) + 1;
	bool closed = gang_slot_closed(slot->word);
	u32 others, first;

	charge_slot(index, now);
	others = settle(index, now);
	if (closed)
		gang_end_closed(slot, now);
	first = fill_row(index, generation, others, now);
	if (!first && others && !contested(index))
		others = 0;
	slot->opened = now;
	/* a full barrier: the row is complete before the word names it */
	__sync_lock_test_and_set(&slot->word,
				 gang_word(generation, first || others ? now + slot->length : 0));
	if (first) {
		count(slots);
		note_decision(GANG_DECISION_SLOT, index, first);
		start_row(slot, domain, now);
	} else if (others) {
		slot->others_last = now;
		count(other_slots);
		note_decision(GANG_DECISION_OTHERS, index, 0);
		start_others(domain);
	} else if (!closed) {
		note_decision(GANG_DECISION_CLOSED, index, 0);
	}
}

/*
 * Open the next slot unless somebody else is at it, or the present one is not over.
 */
__noinline int lead(u32 index, u64 now, bool early)
{
	struct gang_slot *slot = slot_of(index);
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);

	if (!domain || __sync_val_compare_and_swap(&slot->leading, 0, 1))
		return false;
	if (early || gang_slot_over(slot->word, now))
		open_slot(slot, domain, index, now);
	__sync_lock_test_and_set(&slot->leading, 0);
	return true;
}

/*
 * The backstop of a slot edge, and in practice its clock. Only this callback
 * re-arms the timer: a slot opened early by dispatch() has a later deadline than
 * the one the timer was armed for, so it fires in time to be moved.
 */
static int on_deadline(void *map, u32 *key, struct slot_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	struct gang_slot *slot = slot_of(*key);
	u64 deadline;

	if (ended)
		return 0;
	asks_begin();
	if (slot->columns && gang_slot_over(word_of(slot), now))
		lead(*key, now, false);
	asks_end();
	if (!slot->columns)
		return 0;
	deadline = gang_word_deadline(word_of(slot));
	arm(timer, deadline > now ? deadline : now + slot->length);
	if (asks) /* it came after asks_end(), and its arm() perhaps before ours */
		arm(timer, now);
	return 0;
}

#endif /* GANG_SLOT_BPF_H */
