/* SPDX-License-Identifier: GPL-2.0 */
/* Requests of tasks, their virtual deadlines, and which of them turns go around. */
#ifndef GANG_DEADLINE_BPF_H
#define GANG_DEADLINE_BPF_H

#include "fair/account.bpf.h"
#include "gang/in_turn.bpf.h"

#define HANDS_OFTEN 4 /* of the last wakeups: it hands its CPU over */

enum plain {
	PLAIN_TURNS = 0, /* it takes turns */
	PLAIN_LONG = 1,	 /* it works on: turns and it wait for each other */
	PLAIN_BRIEF = 2, /* a turn does without its CPU */
};

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

/* Its virtual deadline; past it, its virtual time. */
static u64 deadline_now(const struct fair_cpu *c, u64 now)
{
	u64 ran = ran_on(c, now);

	return c->v + fair_virtual(c->ask > ran ? c->ask : ran, c->w);
}

/* The task that runs on @cpu pays up to now; whether turns go around it is looked at again. */
static __always_inline void charge(u32 cpu, struct fair_task *t, u64 now)
{
	if (account(cpu, t, now))
		cpu_of(cpu)->plain = plain_of(t, now);
}

#endif /* GANG_DEADLINE_BPF_H */
