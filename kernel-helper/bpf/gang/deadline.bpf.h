/* SPDX-License-Identifier: GPL-2.0 */
/* The requests of tasks, their virtual deadlines, and the tasks that turns leave on their CPUs. */
#ifndef GANG_DEADLINE_BPF_H
#define GANG_DEADLINE_BPF_H

#include "fair/account.bpf.h"
#include "gang/in_turn.bpf.h"

#define HANDS_OFTEN 4 /* from so many on (learn()), the task hands its CPU over */

enum manner {
	MANNER_TURNS = 0, /* the task takes turns */
	MANNER_LONG = 1,  /* the task works on: turns and it wait for each other */
	MANNER_BRIEF = 2, /* a turn does without the task's CPU */
};

/* Return the request of a task, in ns. */
static __always_inline u64 request_of(const struct fair_task *t, u32 cache)
{
	u64 most = FAIR_SLICE;

	if (t->gang && gang_of(t->gang)->nr_runnable > 1 && !limited(t))
		most = turn_most_in(cache);
	return most_of(t, cache, fair_request(t->burst, most));
}

/*
 * Return true if @t may interrupt a turn, where other tasks wait for the turn's end: it runs for a
 * moment at a time, or is to be treated so. A task that uses less than it is worth, or that has a
 * limit on its group, has no other moment to run than in the turns of gangs.
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
 * Return true if a brief task with @v is owed its CPU. A @bound task has no other CPU, and ends
 * what it does: a tick finds it a moment ahead.
 */
static bool ends_request(u8 manner, bool bound, u64 v, u64 w, u64 clock)
{
	return manner == MANNER_BRIEF &&
	       fair_after(v, bound ? clock + fair_virtual(FAIR_SLICE, w) : clock) <= 0;
}

static u8 manner_of(const struct fair_task *t, u64 now)
{
	if (is_brief(t, now) || (t->gang && gang_of(t->gang)->nr_runnable < 2))
		return MANNER_BRIEF;
	return t->gang ? MANNER_TURNS : MANNER_LONG;
}

/*
 * Return the ns until the deadline of a task that waits or goes on; for a member in its turn, until
 * the end of the turn.
 */
static __always_inline u64 ask_of(const struct fair_task *t, u32 cache, u64 now)
{
	if (turn_is_open(t->gang, now))
		return gang_of(t->gang)->until - now;
	return request_of(t, cache);
}

/* Return the virtual deadline of such a task, which has virtual time @v. */
static __always_inline u64 deadline_of(const struct fair_task *t, u32 cache, u64 v, u64 now)
{
	return v + fair_virtual(ask_of(t, cache, now), t->w);
}

/* Return the virtual deadline of the task on @c; past the deadline, its virtual time. */
static u64 deadline_now(const struct fair_cpu *c, u64 now)
{
	u64 ran = ran_on(c, now);

	return c->v + fair_virtual(c->ask > ran ? c->ask : ran, c->w);
}

/* Charge the task that runs on @cpu up to @now, and update whether turns do without its CPU. */
static __always_inline void charge(u32 cpu, struct fair_task *t, u64 now)
{
	if (account(cpu, t, now))
		cpu_of(cpu)->manner = manner_of(t, now);
}

#endif /* GANG_DEADLINE_BPF_H */
