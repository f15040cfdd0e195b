/* SPDX-License-Identifier: GPL-2.0 */
/* A CPU that chose a gang announces it until the gang's turn is open. */
#ifndef GANG_ANNOUNCE_BPF_H
#define GANG_ANNOUNCE_BPF_H

#include "state/lookup.bpf.h"

#define ANNOUNCE_MOST (MSEC / 10) /* from the choice of a gang to its turn, at most */

/*
 * Ticks come to all CPUs at once. While a CPU opens the turn of a gang that it chose, another CPU
 * that chooses sees one member less and no turn, and would open a turn for another gang: the
 * announcement keeps it from that.
 */
#define ANNOUNCE_UNIT 10 /* ns >> this: a word holds centuries of these units, and a gang */

/* Return the gang that is announced in @cache; 0 if there is none. */
static u32 announced_in(u32 cache, u64 now)
{
	u64 word = *(volatile u64 *)&cache_of(cache)->announced;

	return word / GANGS > now >> ANNOUNCE_UNIT ? word % GANGS : 0;
}

/* Return true if no gang is announced in @cache beside which there is no room for @gang. */
static bool fits_beside(u32 cache, u32 gang, u64 now)
{
	u32 other = announced_in(cache, now);

	return !other || other == gang ||
	       gang_of(other)->nr_runnable + gang_of(gang)->nr_runnable <= cache_of(cache)->cpus;
}

static bool announce_in(u32 cache, u32 gang, u64 now)
{
	u64 *word = &cache_of(cache)->announced, was = *(volatile u64 *)word;
	u64 mine = ((now + ANNOUNCE_MOST) >> ANNOUNCE_UNIT) * GANGS + gang;

	if (!fits_beside(cache, gang, now))
		return false;
	return __sync_val_compare_and_swap(word, was, mine) == was || fits_beside(cache, gang, now);
}

static void withdraw_in(u32 cache, u32 gang)
{
	u64 *word = &cache_of(cache)->announced, was = *(volatile u64 *)word;

	if (was % GANGS == gang)
		__sync_val_compare_and_swap(word, was, 0);
}

/* Withdraw the announcement of @gang: its turn has opened, or was given up. */
GLOBAL int withdraw(u32 cache, u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		withdraw_in(cache, gang);
	else
		bpf_for(i, 0, host.caches)
			if (g->caches >> i & 1)
				withdraw_in(i, gang);
	return 0;
}

/*
 * Announce @gang in each cache that it spans. Return false if another gang is announced in one of
 * them beside which there is no room.
 */
GLOBAL bool announce(u32 cache, u32 gang, u64 now)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		return announce_in(cache, gang, now);
	bpf_for(i, 0, host.caches) {
		if (!(g->caches >> i & 1) || announce_in(i, gang, now))
			continue;
		withdraw(cache, gang);
		return false;
	}
	return true;
}

#endif /* GANG_ANNOUNCE_BPF_H */
