/* SPDX-License-Identifier: GPL-2.0 */
/* The gangs that a cache lists: the CPUs of the cache look at the queues of these gangs. */
#ifndef GANG_LISTS_BPF_H
#define GANG_LISTS_BPF_H

#include "state/lookup.bpf.h"

static u32 lists_held; /* a CPU changes which gangs the caches list */

/* Return true if this CPU alone may change which gangs the caches list, until release_lists(). */
static bool hold_lists(void)
{
	return !__sync_val_compare_and_swap(&lists_held, 0, 1);
}

static void release_lists(void)
{
	__sync_lock_test_and_set(&lists_held, 0);
}

/* Make @cache look at the queue of @gang from now on. The caller holds the lists. */
static void list_gang(u32 cache, u32 gang)
{
	struct fair_cache *d = cache_of(cache);
	struct fair_gang *g = gang_of(gang);

	if ((g->caches >> cache & 1) || d->gangs >= LIST)
		return;
	g->caches |= 1ULL << cache;
	d->list[d->gangs & (LIST - 1)] = gang;
	d->gangs++;
	__sync_fetch_and_add(&d->queued, 1); /* the gang may bring waiting members */
}

static void unlist_gang(u32 cache, u32 gang)
{
	struct fair_cache *d = cache_of(cache);
	u32 i;

	gang_of(gang)->caches &= ~(1ULL << cache);
	bpf_for(i, 0, d->gangs)
		if (d->list[i & (LIST - 1)] == gang) {
			d->list[i & (LIST - 1)] = d->list[(d->gangs - 1) & (LIST - 1)];
			d->gangs--;
			break;
		}
}

#endif /* GANG_LISTS_BPF_H */
