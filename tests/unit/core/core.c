// SPDX-License-Identifier: Apache-2.0
/*
 * kernel-helper/module/matrix.h as a shared library: one domain that a test
 * fills, ticks and asks. Nothing is decided here.
 */
#include <string.h>

#include "gang_abi.h"

#include "matrix.h"

#define DOMAIN 0
#define ALL    (~0ULL)

static struct gang_state gangs[GANG_MAX_GANGS];
static struct gang_slot slot;

void core_reset(__u64 length_ns)
{
	memset(gangs, 0, sizeof(gangs));
	memset(&slot, 0, sizeof(slot));
	slot.length = length_ns;
}

void core_add(__u16 id, __u64 columns, __u32 weight, __u8 mode, __u64 now)
{
	gangs[id].columns = columns;
	gangs[id].weight = weight;
	gangs[id].mode = mode;
	gangs[id].last_slot = now;
	slot.list[slot.gangs++] = id;
}

void core_ready(__u16 id, __u64 ready, __u64 running)
{
	gangs[id].ready = ready;
	gangs[id].seen |= ready;
	gangs[id].running = running;
}

/* Fill the next row and publish it; which party was served first. */
__u16 core_open(int others_wait, __u64 now)
{
	__u16 generation = gang_word_generation(slot.word) + 1;
	__u16 first;

	first = gang_fill_row(&slot, gangs, DOMAIN, generation, others_wait ? ALL : 0, now);
	if (!slot.wanted)
		others_wait = 0;
	slot.opened = now;
	slot.word = gang_word(generation, first || others_wait ? now + slot.length : 0);
	return first;
}

__u16 core_owner(__u32 column)
{
	return gang_owner(&slot, slot.word, column);
}

/* Its members used @ns, each as much; as slot.c does at the end of the slot. */
void core_charge(__u16 id, __u64 ns)
{
	__u32 i;

	for (i = 0; id == GANG_OTHERS && i < GANG_CACHE_CPUS; i++)
		if (slot.wanted & gang_bit(i))
			slot.others[i].vtime += gang_charge(ns, GANG_WEIGHT_DEFAULT);
	if (id == GANG_OTHERS)
		return;
	gang_note_used(&gangs[id], ns / __builtin_popcountll(gangs[id].columns));
	gang_pay(&gangs[id]);
}

/* Ordinary tasks weigh @others where the members of @column weigh @members. */
void core_odds(__u32 column, __u32 others, __u32 members)
{
	gang_set_odds(&slot, column, others, members, 0);
	slot.waiting |= gang_bit(column);
}

/* The share of @column that ordinary tasks are due, where gangs want all @columns. */
__u64 core_others_share(__u32 column, __u32 columns)
{
	slot.columns = columns;
	slot.wanted = (gang_bit(columns - 1) << 1) - 1;
	return gang_others_share(&slot, column);
}

__u64 core_vtime(__u16 id)
{
	return id == GANG_OTHERS ? slot.others[0].vtime : gangs[id].vtime;
}

__u64 core_vclock(void)
{
	return slot.vclock;
}

__u64 core_word(__u16 generation, __u64 deadline)
{
	return gang_word(generation, deadline);
}

__u16 core_word_generation(__u64 word)
{
	return gang_word_generation(word);
}

__u64 core_word_deadline(__u64 word)
{
	return gang_word_deadline(word);
}

int core_slot_over(__u64 word, __u64 now)
{
	return gang_slot_over(word, now);
}

int core_all_running(__u16 id)
{
	return gang_all_running(&gangs[id]);
}
