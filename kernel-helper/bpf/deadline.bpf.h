/* SPDX-License-Identifier: GPL-2.0 */
/* Requests of tasks, their virtual deadlines, and who takes turns. */
#ifndef DEADLINE_BPF_H
#define DEADLINE_BPF_H

#include "weight.bpf.h"

#define HANDS_OFTEN 4		/* of the last wakeups: it hands its CPU over */
#define OWED_MOST   (12 * MSEC) /* of a sleeper's lag that it keeps */

enum plain {
	PLAIN_TURNS = 0, /* it takes turns */
	PLAIN_LONG = 1,	 /* it works on: turns and it wait for each other */
	PLAIN_BRIEF = 2, /* a turn does without its CPU */
};

GLOBAL bool is_limited(u32 id);

static __always_inline bool limited(const struct fair_task *t);

static u64 turn_most_in(u32 domain)
{
	return turn_most(turn_ns, runnable_in(domain), domain_of(domain)->cpus);
}

/* @most ns, or as many as the lightest of @domain can wait for. */
static __always_inline u64 most_of(const struct fair_task *t, u32 domain, u64 most)
{
	return fair_most(t->w, weight_in(domain), runnable_in(domain), domain_of(domain)->cpus,
			 most);
}

/* The request of a task, in ns. */
static __always_inline u64 request_of(const struct fair_task *t, u32 domain)
{
	u64 most = FAIR_SLICE;

	if (t->gang && gang_of(t->gang)->on > 1 && !limited(t))
		most = turn_most_in(domain);
	return most_of(t, domain, fair_request(t->burst, most));
}

/*
 * True if it runs for a moment at a time, or is to be treated so: it may interrupt a turn, where
 * others wait for the turn's end. Tasks that use less than they are worth, or whose group has a
 * limit, have no other moment than in the turns of gangs.
 */
static bool is_brief(const struct fair_task *t, u64 now)
{
	if (t->hands >= HANDS_OFTEN)
		return false;
	if (t->burst <= FAIR_SLICE || (t->burst <= TURN_MOST && limited(t)))
		return true;
	return t->burst <= 2 * TURN_MOST && t->util < rate_of(t) * 3 / 4;
}

/*
 * True if a brief task with @v is owed its CPU. One that is @bound has no other, and ends what it
 * does: a tick finds it a moment ahead.
 */
static bool ends_request(u8 plain, bool bound, u64 v, u64 w, u64 clock)
{
	return plain == PLAIN_BRIEF &&
	       fair_after(v, bound ? clock + fair_virtual(FAIR_SLICE, w) : clock) <= 0;
}

static u8 plain_of(const struct fair_task *t, u64 now)
{
	if (is_brief(t, now) || (t->gang && gang_of(t->gang)->on < 2))
		return PLAIN_BRIEF;
	return t->gang ? PLAIN_TURNS : PLAIN_LONG;
}

static bool turn_is_open(u32 gang, u64 now)
{
	return gang && fair_after(gang_of(gang)->until, now) > 0 && gang_of(gang)->on > 1;
}

/*
 * True if the turn that @g has takes CPUs from who is owed them. Two CPUs may open one at once: the
 * end says whose it is.
 */
static bool turn_is_lent(const struct fair_gang *g)
{
	return g->lent == g->until;
}

/* True if the turn that @c was last in goes on. */
static bool in_turn(const struct fair_cpu *c, u64 now)
{
	return c->turn && fair_after(c->until, now) > 0;
}

/* True if @c runs a member of the gang whose turn it is in. */
static bool has_turn(const struct fair_cpu *c, u64 now)
{
	return c->start && c->gang && c->gang == c->turn && in_turn(c, now);
}

/* The ns until the deadline of a task that waits or goes on. In its turn: until the end of that. */
static __always_inline u64 ask_of(const struct fair_task *t, u32 domain, u64 now)
{
	if (turn_is_open(t->gang, now))
		return gang_of(t->gang)->until - now;
	return request_of(t, domain);
}

/* The virtual deadline of such a task, whose virtual time is @v. */
static __always_inline u64 deadline_of(const struct fair_task *t, u32 domain, u64 v, u64 now)
{
	return v + fair_virtual(ask_of(t, domain, now), t->w);
}

/* How long the task on @c has run since it was charged. */
static u64 ran_on(const struct fair_cpu *c, u64 now)
{
	u64 start = *(volatile u64 *)&c->start;

	return start ? fair_since(start, now) : 0;
}

/* Its virtual time. */
static u64 v_now(const struct fair_cpu *c, u64 now)
{
	return c->v + fair_virtual(ran_on(c, now), c->w);
}

/* Its virtual deadline; past it, its virtual time. */
static u64 deadline_now(const struct fair_cpu *c, u64 now)
{
	u64 ran = ran_on(c, now);

	return c->v + fair_virtual(c->ask > ran ? c->ask : ran, c->w);
}

#endif /* DEADLINE_BPF_H */
