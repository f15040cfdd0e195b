// SPDX-License-Identifier: Apache-2.0
/*
 * One domain of kernel-helper/module/matrix.h and the orders that change it, as gang.ko takes
 * them. A slot is played as a whole: who owns
 * columns runs its runnable members there to the end and is charged for it.
 */
#include <string.h>

#include "gang_abi.h"

#include "matrix.h"

#define DOMAIN 0
#define ALL    (~0ULL)

static struct gang_state gangs[GANG_MAX_GANGS];
static struct gang_slot slot;

void play_reset(__u64 length_ns)
{
	memset(gangs, 0, sizeof(gangs));
	memset(&slot, 0, sizeof(slot));
	slot.length = length_ns;
}

static void list(__u16 id)
{
	__u32 i;

	for (i = 0; i < slot.gangs; i++)
		if (slot.list[i] == id)
			return;
	slot.list[slot.gangs++] = id;
}

/* Start it, or change where it is, what it weighs, how it is scheduled. */
void play_set(__u16 id, __u64 columns, __u32 weight, __u8 mode)
{
	struct gang_state *gang = &gangs[id];

	if (mode == GANG_MODE_OFF) {
		gang->mode = mode;
		return;
	}
	list(id);
	if (gang->mode == GANG_MODE_OFF) {
		gang->ready = 0;
		gang->seen = 0;
		gang->running = 0;
		gang->vtime = slot.vclock;
	}
	gang->ready &= columns;
	gang->columns = columns;
	gang->weight = weight;
	gang->mode = mode;
}

void play_ready(__u16 id, __u64 ready, __u64 now)
{
	if (ready && !gangs[id].ready)
		gangs[id].last_slot = now;
	gangs[id].ready = ready;
	gangs[id].seen |= ready;
}

static void run(__u16 id)
{
	struct gang_state *gang = &gangs[id];

	gang_note_used(gang, gang->ready ? slot.length : 0);
	gang_pay(gang);
}

/* Open a slot at @now; who was served first. */
__u16 play_open(int others, __u64 now)
{
	__u16 generation = gang_word_generation(slot.word) + 1;
	__u16 first;

	first = gang_fill_row(&slot, gangs, DOMAIN, generation, others ? ALL : 0, now);
	slot.opened = now;
	slot.word = gang_word(generation, first || others ? now + slot.length : 0);
	return first;
}

/* Have everybody in the slot use it. */
void play_run(void)
{
	__u64 done = 0;
	__u32 column;

	for (column = 0; column < GANG_CACHE_CPUS; column++) {
		__u16 id = gang_owner(&slot, slot.word, column);

		if (!id || done & (1ULL << column))
			continue;
		done |= gangs[id].taken;
		run(id);
	}
	for (column = 0; column < GANG_CACHE_CPUS; column++)
		if (slot.waiting & slot.wanted & ~done & gang_bit(column))
			slot.others[column].vtime += gang_charge(slot.length, GANG_WEIGHT_DEFAULT);
}

/* The columns whose ordinary tasks came before a gang. */
__u64 play_owed(void)
{
	return slot.owed;
}

/* The owner of every column. */
void play_row(__u16 *owners)
{
	__u32 column;

	for (column = 0; column < GANG_CACHE_CPUS; column++)
		owners[column] = gang_owner(&slot, slot.word, column);
}

__u64 play_vtime(__u16 id)
{
	return gangs[id].vtime;
}

__u64 play_vclock(void)
{
	return slot.vclock;
}

__u64 play_word(void)
{
	return slot.word;
}
