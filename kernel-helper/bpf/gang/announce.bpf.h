/* SPDX-License-Identifier: GPL-2.0 */
/* A CPU that chose a gang announces it (a call), until the gang's turn is open. */
#ifndef GANG_ANNOUNCE_BPF_H
#define GANG_ANNOUNCE_BPF_H

#include "state/lookup.bpf.h"

#define CALL (MSEC / 10) /* from the choice of a gang to its turn, at most */

/*
 * Ticks come to all CPUs at once. While a CPU opens the turn of a gang that it chose, another CPU
 * that chooses sees one member less and no turn, and would open a turn for another gang: the
 * announcement keeps it from that.
 */
#define CALL_UNIT 10 /* ns >> this: a word holds centuries of these units, and a gang */

/* Return the gang that is announced in @cache; 0 if there is none. */
static u32 called_in(u32 cache, u64 now)
{
	u64 call = *(volatile u64 *)&cache_of(cache)->call;

	return call / GANGS > now >> CALL_UNIT ? call % GANGS : 0;
}

/* Return true if no gang is announced in @cache beside which there is no room for @gang. */
static bool fits_beside_call(u32 cache, u32 gang, u64 now)
{
	u32 other = called_in(cache, now);

	return !other || other == gang ||
	       gang_of(other)->on + gang_of(gang)->on <= cache_of(cache)->cpus;
}

static bool call_in(u32 cache, u32 gang, u64 now)
{
	u64 *word = &cache_of(cache)->call, was = *(volatile u64 *)word;
	u64 mine = ((now + CALL) >> CALL_UNIT) * GANGS + gang;

	if (!fits_beside_call(cache, gang, now))
		return false;
	return __sync_val_compare_and_swap(word, was, mine) == was ||
	       fits_beside_call(cache, gang, now);
}

static void end_call_in(u32 cache, u32 gang)
{
	u64 *word = &cache_of(cache)->call, was = *(volatile u64 *)word;

	if (was % GANGS == gang)
		__sync_val_compare_and_swap(word, was, 0);
}

/* Withdraw the announcement of @gang: its turn has opened, or was given up. */
GLOBAL int end_call(u32 cache, u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		end_call_in(cache, gang);
	else
		bpf_for(i, 0, host.caches)
			if (g->caches >> i & 1)
				end_call_in(i, gang);
	return 0;
}

/*
 * Announce @gang in each cache that it spans. Return false if another gang is announced in one of
 * them beside which there is no room.
 */
GLOBAL bool call(u32 cache, u32 gang, u64 now)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		return call_in(cache, gang, now);
	bpf_for(i, 0, host.caches) {
		if (!(g->caches >> i & 1) || call_in(i, gang, now))
			continue;
		end_call(cache, gang);
		return false;
	}
	return true;
}

#endif /* GANG_ANNOUNCE_BPF_H */
