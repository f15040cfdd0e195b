/* SPDX-License-Identifier: GPL-2.0 */
/* A CPU that chose a gang announces it (a call), until its turn is open. */
#ifndef GANG_ANNOUNCE_BPF_H
#define GANG_ANNOUNCE_BPF_H

#include "state/lookup.bpf.h"

#define CALL (MSEC / 10) /* from the choice of a gang to its turn, at most */

/*
 * A CPU that chose a gang calls it, until its turn is open: another CPU that chooses at this
 * moment, as ticks come to all at once, sees one member less and no turn, and would open one for
 * others.
 */
#define CALL_UNIT 10 /* ns >> this: a word has room for centuries of them, and a gang */

/* The gang that is called in @domain; 0: none. */
static u32 called_in(u32 domain, u64 now)
{
	u64 call = *(volatile u64 *)&domain_of(domain)->call;

	return call / GANGS > now >> CALL_UNIT ? call % GANGS : 0;
}

/* True if no gang is called in @domain beside which there is no room for @gang. */
static bool fits_beside_call(u32 domain, u32 gang, u64 now)
{
	u32 other = called_in(domain, now);

	return !other || other == gang ||
	       gang_of(other)->on + gang_of(gang)->on <= domain_of(domain)->cpus;
}

static bool call_in(u32 domain, u32 gang, u64 now)
{
	u64 *word = &domain_of(domain)->call, was = *(volatile u64 *)word;
	u64 mine = ((now + CALL) >> CALL_UNIT) * GANGS + gang;

	if (!fits_beside_call(domain, gang, now))
		return false;
	return __sync_val_compare_and_swap(word, was, mine) == was ||
	       fits_beside_call(domain, gang, now);
}

static void end_call_in(u32 domain, u32 gang)
{
	u64 *word = &domain_of(domain)->call, was = *(volatile u64 *)word;

	if (was % GANGS == gang)
		__sync_val_compare_and_swap(word, was, 0);
}

/* The turn of @gang is open, or will not be. */
GLOBAL int end_call(u32 domain, u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		end_call_in(domain, gang);
	else
		bpf_for(i, 0, host.domains)
			if (g->domains >> i & 1)
				end_call_in(i, gang);
	return 0;
}

/* Call @gang wherever it may run. False: another one is called, beside which there is no room. */
GLOBAL bool call(u32 domain, u32 gang, u64 now)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		return call_in(domain, gang, now);
	bpf_for(i, 0, host.domains) {
		if (!(g->domains >> i & 1) || call_in(i, gang, now))
			continue;
		end_call(domain, gang);
		return false;
	}
	return true;
}

#endif /* GANG_ANNOUNCE_BPF_H */
