/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The flat weight of a task is what the weights of its groups leave it among siblings that have
 * something to run.
 *
 * A group knows the effective weights of its active children, in one word with their number, so
 * that no CPU sees half of a change. The first runnable task of a group counts the group in its
 * parent, the last one takes it out. The share of a group is what it has of the root. A CPU that
 * needs a share computes it anew if groups have come or gone since, or if a while has passed,
 * because effective weights move by themselves. The root divides nothing, so the weights of its
 * children do not change when one of them sleeps.
 */
#ifndef FAIR_WEIGHT_BPF_H
#define FAIR_WEIGHT_BPF_H

#include "fair/clock.bpf.h"
#include "state/waiting.bpf.h"

#define SHARE_AGE MSEC /* a share is good for so long */

/* counts the changes of weights, and of the groups that have something to run */
static u32 group_gen = 1;

/*
 * Return the sum of the effective weights of the active children of @g; the caller is one of them,
 * with @least.
 */
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
	return host.caches == 1 ? runnable_in(0) : *(volatile u32 *)&host.nr;
}

/* Return true if a task has to wait. */
static bool host_is_full(void)
{
	return host_runnable() > host.cpus;
}

/*
 * Set the weight that @g is counted with to @counted, and return the change for the parent's word.
 * The parent's sum fits, whatever two CPUs do at once.
 */
static u64 recount(struct fair_group *g, u64 counted)
{
	u64 was = __sync_lock_test_and_set(&g->counted, counted);

	return (counted - was) << NR_BITS;
}

/*
 * Count a task that comes (@by: 1) below group @id, or leaves (-1). @changes: the group becomes
 * active, or ceases to be.
 */
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
			/* a weight changed while a task came or left */
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

/* Take out a task that group @id counted with the weight @counted. */
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
 * Return the CPUs that @g can use: as many as it has tasks, and at most half as many again as its
 * cpu.max. At the weight of exactly its cpu.max the group would be owed its quota at the end of
 * each period only, which is too late for it.
 */
static u64 usable(const struct fair_group *g)
{
	u64 most = g->tasks ? g->tasks * FAIR_CPU : FAIR_CPU, limit = g->limit + g->limit / 2;

	return g->limit && limit < most ? limit : most;
}

/*
 * Return the effective weight of a child of @weight that can use @limit of the @room CPUs of
 * @parent, beside siblings of @rest. If the tasks of the parent can use less than @room, the parent
 * divides what they can use.
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

/*
 * Correct the effective weight of group @id, and compute its share and rate from those of its
 * parent; @top: the parent is the root. The verifier checks this once a program: inline in the loop
 * of share_of() it was half of all that the verifier had to do.
 */
GLOBAL int update_share(u32 id, bool top)
{
	struct fair_group *g = group_of(id);
	const struct fair_group *parent = group_of(g->parent);
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
	return 0;
}

/* Compute the share of group @id and of the groups above it anew, and return it. */
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
		update_share(path[i], !level);
		g = group_of(path[i]);
		g->share_at = now;
		barrier();
		g->share_gen = gen;
	}
	return group_of(id)->share;
}

/* Return the flat weight of a task with effective weight @fits in group @g of @share. */
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

/* Correct the effective weight of @t, which is counted in its group, and return its flat weight. */
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

/* Return the CPUs that a task is worth, as a rate. */
static u64 rate_of(const struct fair_task *t)
{
	u64 all = host_weight(), rate;

	if (!host_is_full() || !all)
		return FAIR_CPU;
	rate = t->w * host.cpus * (FAIR_CPU >> 4) / all << 4;
	return rate < FAIR_CPU ? rate : FAIR_CPU;
}

/* Return @most ns, or as many as @t can wait for if it is light; see fair_most(). */
static __always_inline u64 most_of(const struct fair_task *t, u32 cache, u64 most)
{
	return fair_most(t->w, weight_in(cache), runnable_in(cache), cache_of(cache)->cpus, most);
}

#endif /* FAIR_WEIGHT_BPF_H */
