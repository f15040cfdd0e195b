/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Balance between caches. Flat weights are shares of the host, so the sum of a cache's weights,
 * divided by its CPUs, says how crowded the cache is. A whole gang moves if that brings two caches
 * closer. Where a move would only exchange the two, the gang that had most moves now and then, so
 * that no gang is in the full cache for ever. An ordinary task goes to the cache that has most room
 * whenever it is queued.
 */
#ifndef GANG_BALANCE_BPF_H
#define GANG_BALANCE_BPF_H

#include "gang/lists.bpf.h"
#include "state/stats.bpf.h"
#include "state/waiting.bpf.h"

#define LOAD_EVERY   (3 * MSEC) /* a load is an average over eight of these */
#define MOVE_EVERY   (50 * MSEC)
#define ROTATE_EVERY (200 * MSEC)

static u64 per_cpu(const struct fair_cache *d)
{
	return d->load / (d->cpus ? d->cpus : 1);
}

static u64 ewma8(u64 load, u64 w)
{
	return load + (u64)((s64)(w - load) >> 3);
}

/* Return the cache of @room that has most room; @best if no cache has more. */
static u32 least_loaded(u64 room, u32 best)
{
	u32 i;

	bpf_for(i, 0, host.caches)
		if ((room >> i & 1) && per_cpu(cache_of(i)) < per_cpu(cache_of(best)))
			best = i;
	return best;
}

/*
 * Move @gang from cache @from to cache @to. Two CPUs may find the same move, or two moves to one
 * place: the first CPU makes its move.
 */
static void move_gang(u32 gang, u32 from, u32 to, u64 now)
{
	struct fair_gang *g = gang_of(gang);
	struct fair_cache *d = cache_of(from), *o = cache_of(to);

	if (g->wide || g->cache != from || o->gangs >= LIST ||
	    fair_since(d->moved_at, now) < MOVE_EVERY || fair_since(o->moved_at, now) < MOVE_EVERY)
		return;
	d->moved_at = o->moved_at = now;
	g->cache = to; /* set first: see note_queued() */
	list_gang(to, gang);
	o->strangers = 1;
	unlist_gang(from, gang);
	g->until = now;
	d->load -= g->load;
	o->load += g->load;
	count(moves);
}

/*
 * Return the caches in which some gang of @d may be; gangs that span several caches do not count.
 */
static u64 room_of_gangs(const struct fair_cache *d)
{
	u64 room = 0;
	u32 i;

	bpf_for(i, 0, d->gangs) {
		const struct fair_gang *g = gang_of(gang_at(d, i));

		room |= g->wide ? 0 : g->room;
	}
	return room;
}

/*
 * Return the gang of @from that should be in @to; 0 if there is none. Set *@rotates if the move
 * would only exchange the two caches.
 */
static u32 gang_to_move(u32 from, u32 to, bool *rotates)
{
	const struct fair_cache *d = cache_of(from), *o = cache_of(to);
	s64 gap = per_cpu(d) - per_cpu(o), least = 0;
	u32 i, best = 0, rich = 0;
	u64 most = 0;

	if (gap <= (s64)(per_cpu(d) / 8))
		return 0;
	bpf_for(i, 0, d->gangs) {
		u32 id = gang_at(d, i);
		const struct fair_gang *g = gang_of(id);
		s64 after = gap - g->load / d->cpus - g->load / (o->cpus ? o->cpus : 1);

		if (g->wide || g->cache != from || !g->load || !(g->room >> to & 1))
			continue;
		after = after < 0 ? -after : after; /* the part of the gap that would be left */
		if (after < (gap * 3 >> 2) && (!best || after < least)) {
			best = id;
			least = after;
		}
		if (after < (gap * 9 >> 3) && (!rich || fair_after(g->had, most) > 0)) {
			rich = id;
			most = g->had;
		}
	}
	*rotates = !best;
	return best ? best : rich;
}

static void note_host(void)
{
	u32 i, nr = 0;

	bpf_for(i, 0, host.caches)
		nr += runnable_in(i);
	host.nr = nr;
}

static void note_load(u32 cache)
{
	struct fair_cache *d = cache_of(cache);
	u32 i;

	d->load = ewma8(d->load, weight_in(cache));
	bpf_for(i, 0, d->gangs) {
		struct fair_gang *g = gang_of(gang_at(d, i));

		g->load = ewma8(g->load, g->w);
	}
}

/* Move a gang to the cache that has most room; the tick of a CPU of @cache calls this. */
GLOBAL int balance(u32 cache, u64 now)
{
	struct fair_cache *d = cache_of(cache), *o;
	bool rotates = false;
	u32 to, gang;

	if (host.caches < 2)
		return 0;
	note_host();
	if (fair_since(d->load_at, now) < LOAD_EVERY)
		return 0;
	d->load_at = now;
	note_load(cache);
	if (fair_since(d->moved_at, now) < MOVE_EVERY)
		return 0;
	to = least_loaded(room_of_gangs(d), cache);
	o = cache_of(to);
	if (to == cache || fair_since(o->moved_at, now) < MOVE_EVERY)
		return 0;
	gang = gang_to_move(cache, to, &rotates);
	if (!gang)
		return 0;
	if (rotates) {
		if (fair_since(d->turned_at, now) <= ROTATE_EVERY ||
		    fair_since(o->turned_at, now) <= ROTATE_EVERY)
			return 0;
		d->turned_at = o->turned_at = now;
	}
	if (!hold_lists())
		return 0;
	move_gang(gang, cache, to, now);
	release_lists();
	return 0;
}

/* Return the cache in which @t, which is in @cache and bound to no CPU, is to wait. */
static u32 roomiest(const struct fair_task *t, u32 cache)
{
	struct fair_cache *d = cache_of(cache), *o;
	u32 to;

	if (host.caches < 2)
		return cache;
	to = least_loaded(t->room, cache);
	o = cache_of(to);
	if (to == cache || (s64)(per_cpu(d) - per_cpu(o)) <=
				   (s64)(t->w / d->cpus + t->w / o->cpus + per_cpu(d) / 16))
		return cache;
	d->load -= t->w;
	o->load += t->w;
	return to;
}

#endif /* GANG_BALANCE_BPF_H */
