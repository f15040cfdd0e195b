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

static void note_used(struct gang_slot *slot, struct gang_cpu *cpu, u32 column, u64 elapsed)
{
	u64 used = __sync_lock_test_and_set(&cpu->used, 0);
	u32 owner = gang_owner(slot, word_of(slot), column);

	if (owner)
		gang_note_used(gang_of(owner), used, elapsed);
}

/* The CPU behind a column, NO_CPU where the domain has none. */
static u32 cpu_at(const struct gang_domain *domain, u32 column)
{
	return column < domain->columns ? domain->cpu[column & (GANG_DOMAIN_CPUS - 1)] : NO_CPU;
}

/* Close the accounts of the slot that ends; returns the columns where ordinary tasks want a CPU. */
__noinline u64 settle(u32 index, u64 now)
{
	struct gang_slot *slot = slot_of(index);
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u64 elapsed = now - slot->opened, waiting = 0;
	u32 column;

	if (!domain)
		return 0;
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = cpu_at(domain, column);
		struct gang_cpu *cpu;

		if (id == NO_CPU)
			break;
		cpu = cpu_of(id);
		charge(id, now);
		note_used(slot, cpu, column, elapsed);
		cpu->credit += elapsed >> OTHERS_SHARE_SHIFT;
		if (cpu->credit > OTHERS_SLICE)
			cpu->credit = OTHERS_SLICE;
		if (others_on(cpu, id))
			waiting |= column_bit(column);
	}
	return waiting;
}

/* Is somebody on @cpu that is not of gang @id? */
static bool runs_other(const struct gang_cpu *cpu, u32 id)
{
	return cpu->current != NOBODY && cpu->current != id;
}

/* Nobody owns the column of @id: does an ordinary task wait there, for a gang's filler? */
static bool keeps_others_waiting(u32 id)
{
	struct gang_cpu *cpu = cpu_of(id);

	return cpu->current != GANG_OTHERS && others_on(cpu, id);
}

/*
 * The row is published: interrupt the CPUs that do not run their owner, and those without one where
 * an ordinary task waits, and only those.
 */
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
		if (!id) {
			if (keeps_others_waiting(cpu)) {
				interrupt(cpu);
				count(kicks);
			}
			continue;
		}
		if ((gang->taken & -gang->taken) == column_bit(column)) {
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

__noinline u32 fill_row(u32 index, u32 generation, u64 waiting, u64 now)
{
	return gang_fill_row(slot_of(index), gangs, index, generation, waiting, now);
}

__noinline int contested(u32 index)
{
	return gang_wanted(slot_of(index), gangs) != 0;
}

static void open_slot(struct gang_slot *slot, const struct gang_domain *domain, u32 index, u64 now)
{
	u16 generation = gang_word_generation(slot->word) + 1;
	bool closed = gang_slot_closed(slot->word);
	u64 waiting = settle(index, now);
	u32 first;
	bool others;

	charge_slot(index, now);
	first = fill_row(index, generation, waiting, now);
	others = waiting && slot->wanted;
	slot->opened = now;
	/* a full barrier: the row is complete before the word names it */
	__sync_lock_test_and_set(&slot->word,
				 gang_word(generation, first || others ? now + slot->length : 0));
	if (first) {
		count(slots);
		note_decision(GANG_DECISION_SLOT, index, first);
	} else if (others) {
		count(other_slots);
		note_decision(GANG_DECISION_OTHERS, index, 0);
	} else if (!closed) {
		note_decision(GANG_DECISION_CLOSED, index, 0);
	}
	if (first || others)
		start_row(slot, domain, now);
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
