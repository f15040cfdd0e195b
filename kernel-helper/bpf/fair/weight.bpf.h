/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Flat weights: of each task, what the weights of its groups leave it among siblings that have
 * something to run.
 *
 * A group knows the effective weights of its active children, in one word with their number, so
 * that no CPU sees half of a change. The first task of a group counts it in its parent, the last
 * one takes it out. What a group has of the root, its share, is computed when it is asked for and
 * groups have come or gone since, or a while has passed: effective weights move by themselves. The
 * root divides nothing, so the weights of its children do not change when one of them sleeps.
 */
#ifndef FAIR_WEIGHT_BPF_H
#define FAIR_WEIGHT_BPF_H

#include "fair/clock.bpf.h"
#include "state/waiting.bpf.h"

#define SHARE_AGE MSEC /* for so long a share is good */

static u32 group_gen = 1; /* of groups that have something to run, and of their weights */

/* Effective weights of the active children of @g, of which the caller is one with @least. */
static u64 children_of(const struct fair_group *g, u64 least)
{
	s64 sum = (s64) * (volatile u64 *)&g->word >> NR_BITS;

	/* a child that is about to be counted, or was a moment ago, counts itself */
	return sum < (s64)least ? least : (u64)sum;
}

static u64 host_weight(void)
{
	return children_of(group_of(0), 1);
}

static u32 host_runnable(void)
{
	return host.domains == 1 ? runnable_in(0) : *(volatile u32 *)&host.nr;
}

/* True if somebody has to wait. */
static bool host_is_full(void)
{
	return host_runnable() > host.cpus;
}

/* Count @g in its parent with @counted; whatever two CPUs do at once, the parent's sum fits. */
static u64 recount(struct fair_group *g, u64 counted)
{
	u64 was = __sync_lock_test_and_set(&g->counted, counted);

	return (counted - was) << NR_BITS;
}

/* A task comes (@by: 1) below group @id, which is active already, or leaves (-1). */
GLOBAL int note_active(u32 id, s32 by, bool changes)
{
	u32 level;

	bpf_for(level, 0, DEPTH) {
		struct fair_group *g = group_of(id);

		if (!id)
			break;
		__sync_fetch_and_add(&g->tasks, by);
		id = g->parent;
		if (changes) {
			u64 delta = recount(g, by > 0 ? g->weight : 0) + (u64)(s64)by;
			u64 word = __sync_fetch_and_add(&group_of(id)->word, delta) + delta;

			__sync_fetch_and_add(&group_gen, 1);
			changes = (word & NR_MASK) == (by > 0 ? 1 : 0);
			/* a weight was changed while somebody came or went */
			if (!(word & NR_MASK))
				__sync_val_compare_and_swap(&group_of(id)->word, word, 0);
		}
	}
	return 0;
}

static __always_inline void group_enqueue(struct fair_task *t, u32 own)
{
	struct fair_group *g = group_of(t->group);
	u64 word;

	t->own = t->counted = own;
	word = __sync_fetch_and_add(&g->word, ((u64)own << NR_BITS) + 1);
	if (t->group)
		note_active(t->group, 1, !(word & NR_MASK));
}

/* A task that was @counted in group @id is so no longer. */
static __always_inline void group_dequeue(u32 id, u32 counted)
{
	struct fair_group *g = group_of(id);
	u64 one = ((u64)counted << NR_BITS) + 1, word;

	word = __sync_fetch_and_add(&g->word, -one) - one;
	if (!(word & NR_MASK))
		__sync_val_compare_and_swap(&g->word, word, 0);
	if (id)
		note_active(id, -1, !(word & NR_MASK));
}

/*
 * CPUs that @g can use: as many as it has tasks, and half as many again as its cpu.max. With the
 * weight of exactly that it would be owed its quota at the end of each period only, which is too
 * late for it.
 */
static u64 usable(const struct fair_group *g)
{
	u64 most = g->tasks ? g->tasks * FAIR_CPU : FAIR_CPU, limit = g->limit + g->limit / 2;

	return g->limit && limit < most ? limit : most;
}

/*
 * The effective weight of a child of @weight that can use @limit of the @room CPUs of @parent,
 * beside others of @rest. Where everybody in the parent has all that it can use, that is what
 * divides it.
 */
static u64 part_of(const struct fair_group *parent, u64 weight, u64 rest, u64 limit, u64 room,
		   bool top)
{
	if (!host_is_full())
		return weight;
	if (!top && parent->tasks * FAIR_CPU < room)
		room = parent->tasks * FAIR_CPU;
	return fair_effective(weight, rest, limit, room);
}

/* Correct the effective weight of @g; its share and rate, given those of its parent. */
static void update_share(struct fair_group *g, const struct fair_group *parent, bool top)
{
	u64 all = host_weight(), can = usable(g), counted = g->counted;
	u64 room = top ? host.cpus * FAIR_CPU : parent->rate;
	u64 sum = children_of(parent, counted);
	u64 fits = part_of(parent, g->weight, sum - counted, can, room, top);

	if (counted && fits != counted &&
	    __sync_val_compare_and_swap(&g->counted, counted, fits) == counted)
		__sync_fetch_and_add(&group_of(g->parent)->word, (fits - counted) << NR_BITS);
	if (top)
		g->share = fits << SHARE_BITS;
	else
		g->share = parent->share * fits / children_of(parent, fits);
	room = all ? g->share * host.cpus / all << (20 - SHARE_BITS) : can;
	g->rate = host_is_full() && room < can ? room + 1 : can;
}

/* The share of group @id, computed anew with those above it. */
GLOBAL u64 share_of(u32 id, u64 now)
{
	u32 path[DEPTH], level, depth = 0, at = id, gen = *(volatile u32 *)&group_gen;

	bpf_for(level, 0, DEPTH) {
		if (!at)
			break;
		path[level] = at;
		depth = level + 1;
		at = group_of(at)->parent;
	}
	bpf_for(level, 0, DEPTH) {
		u32 i = depth - 1 - level;
		struct fair_group *g;

		if (level >= depth || i >= DEPTH)
			break;
		g = group_of(path[i]);
		update_share(g, group_of(g->parent), !level);
		g->share_at = now;
		barrier();
		g->share_gen = gen;
	}
	return group_of(id)->share;
}

/* The flat weight of a task with effective weight @fits in its group. */
static __always_inline u64 flat_of(const struct fair_group *g, u64 share, u64 fits)
{
	u64 sum = children_of(g, fits);
	u64 w = (share * fits / (sum ? sum : 1) + (1 << (SHARE_BITS - 1))) >> SHARE_BITS;

	return w ? w : 1;
}

static __always_inline u64 fresh_share(u32 id, u64 now)
{
	const struct fair_group *g = group_of(id);

	return g->share_gen == group_gen && now - g->share_at < SHARE_AGE ? g->share :
									    share_of(id, now);
}

/* The flat weight of a task that is counted in its group; its effective weight there is corrected.
 */
static __always_inline u64 flat_weight(struct fair_task *t, u64 now)
{
	struct fair_group *g = group_of(t->group);
	u64 share = t->group ? fresh_share(t->group, now) : 0, fits = t->own;
	u64 room = t->group ? g->rate : host.cpus * FAIR_CPU;

	if (t->group || !t->bound)
		fits = part_of(g, t->own, children_of(g, t->counted) - t->counted, FAIR_CPU, room,
			       !t->group);
	if (fits != t->counted) {
		__sync_fetch_and_add(&g->word, (fits - t->counted) << NR_BITS);
		t->counted = fits;
	}
	return t->group ? flat_of(g, share, fits) : fits;
}

/* The CPUs that a task is worth, as a rate. */
static u64 rate_of(const struct fair_task *t)
{
	u64 all = host_weight(), rate;

	if (!host_is_full() || !all)
		return FAIR_CPU;
	rate = t->w * host.cpus * (FAIR_CPU >> 4) / all << 4;
	return rate < FAIR_CPU ? rate : FAIR_CPU;
}

/* @most ns, or as many as the lightest of @domain can wait for. */
static __always_inline u64 most_of(const struct fair_task *t, u32 domain, u64 most)
{
	return fair_most(t->w, weight_in(domain), runnable_in(domain), domain_of(domain)->cpus,
			 most);
}

#endif /* FAIR_WEIGHT_BPF_H */
