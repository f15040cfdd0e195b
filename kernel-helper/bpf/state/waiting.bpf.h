/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The runnable tasks of a cache, and whether tasks wait there. A CPU looks at the queues of gangs
 * only while a member may be in one.
 */
#ifndef STATE_WAITING_BPF_H
#define STATE_WAITING_BPF_H

#include "state/lookup.bpf.h"

/*
 * Return the number of runnable tasks of a cache; running_in() returns how many of them run, and
 * weight_in() their weight.
 */
static u32 runnable_in(u32 cache)
{
	return *(volatile u32 *)&clock_of(cache)->nr + *(volatile u32 *)&cache_of(cache)->bound_nr;
}

static u32 running_in(u32 cache)
{
	return *(volatile u32 *)&clock_of(cache)->running +
	       *(volatile u32 *)&cache_of(cache)->bound_running;
}

static u64 weight_in(u32 cache)
{
	return *(volatile u64 *)&clock_of(cache)->w + *(volatile u64 *)&cache_of(cache)->bound_w;
}

/* Tell each cache that looks at the queue of @gang that a member was queued; call it afterwards. */
GLOBAL int note_queued(u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i, cache = *(volatile u16 *)&g->cache;

	if (!g->wide) {
		__sync_fetch_and_add(&cache_of(cache)->queued, 1);
		if (*(volatile u16 *)&g->cache == cache)
			return 0;
		cache = g->cache; /* the gang moved meanwhile */
		__sync_fetch_and_add(&cache_of(cache)->queued, 1);
		return 0;
	}
	bpf_for(i, 0, host.caches)
		if (g->caches >> i & 1)
			__sync_fetch_and_add(&cache_of(i)->queued, 1);
	return 0;
}

/* Return false if no member of a gang waits in @cache. */
static bool members_wait(u32 cache)
{
	const struct fair_cache *d = cache_of(cache);

	return *(volatile u32 *)&d->queued != *(volatile u32 *)&d->emptied;
}

/* Return true if members of a gang wait that came from another cache, which still counts them. */
GLOBAL bool strangers_wait(u32 cache)
{
	struct fair_cache *d = cache_of(cache);
	u32 i;

	d->strangers = 0; /* a gang that comes meanwhile sets it again */
	bpf_for(i, 0, d->gangs)
		if (scx_bpf_dsq_nr_queued(gang_queue(gang_at(d, i))) > 0)
			d->strangers = 1;
	return d->strangers;
}

/*
 * Return true if more tasks wait in @cache, for any of its CPUs, than it has CPUs: none is idle.
 */
static bool is_crowded(u32 cache)
{
	const struct fair_clock *k = clock_of(cache);

	return *(volatile u32 *)&k->nr > *(volatile u32 *)&k->running + cache_of(cache)->cpus;
}

/*
 * Return true if each CPU of @cache, the only cache, runs a task of ours; @more tasks run beside
 * those counted.
 */
static bool is_full_with(u32 cache, u32 more)
{
	return host.caches == 1 && running_in(cache) + more >= cache_of(cache)->cpus;
}

/* Return true if a task waits in @cache. */
static bool waits_in(u32 cache)
{
	const struct fair_cache *d = cache_of(cache);

	return runnable_in(cache) > running_in(cache) || d->loose ||
	       (d->strangers && strangers_wait(cache));
}

#endif /* STATE_WAITING_BPF_H */
