/* SPDX-License-Identifier: GPL-2.0 */
/* The turn that a gang has, and the turn that a CPU is in. */
#ifndef GANG_IN_TURN_BPF_H
#define GANG_IN_TURN_BPF_H

#include "state/stats.bpf.h"
#include "state/waiting.bpf.h"

static u64 turn_most_in(u32 cache)
{
	return turn_most(turn_ns, runnable_in(cache), cache_of(cache)->cpus);
}

static bool turn_is_open(u32 gang, u64 now)
{
	return gang && fair_after(gang_of(gang)->until, now) > 0 && gang_of(gang)->nr_runnable > 1;
}

/*
 * Return true if the turn of @g takes CPUs from tasks that are owed them. Two CPUs may open a turn
 * at once: the end says which of the two turns it is.
 */
static bool turn_is_lent(const struct fair_gang *g)
{
	return g->lent == g->until;
}

/* Return true if the turn that @c was last in goes on. */
static bool in_turn(const struct fair_cpu *c, u64 now)
{
	return c->turn && fair_after(c->until, now) > 0;
}

/* Return true if @c runs a member of the gang that has its turn there. */
static bool has_turn(const struct fair_cpu *c, u64 now)
{
	return c->start && c->gang && c->gang == c->turn && in_turn(c, now);
}

/* Put @cpu in the turn of @gang from now on. */
static void give_turn(u32 cpu, u32 gang, bool lent)
{
	struct fair_cpu *c = cpu_of(cpu);

	c->turn = gang;
	c->until = gang_of(gang)->until;
	c->lent = lent;
	if (lent)
		count(lent);
}

/* Count, once a turn, that @gang has no runnable member any more and its turn is of no use. */
static void note_idle(u32 gang, u64 now)
{
	struct fair_gang *g = gang_of(gang);

	if (g->nr_runnable || !turn_is_open(gang, now) || g->early == g->opened)
		return;
	g->early = g->opened;
	count_of(gang, ended_early, 1);
}

#endif /* GANG_IN_TURN_BPF_H */
