/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task becomes runnable, and ceases to be: it joins a clock, and leaves it.
 *
 * A task that wakes is placed at the clock, less what it was owed when it went to sleep. A child
 * begins with its parent's debt.
 */
#ifndef RUNNABLE_BPF_H
#define RUNNABLE_BPF_H

#include "bandwidth.bpf.h"

static u32 weight_of(const struct task_struct *p)
{
	return p->policy == SCHED_IDLE ? FAIR_IDLE_WEIGHT : fair_nice_weight(p->static_prio - 100);
}

/* Returns 1 if @p may run on every CPU of @domain. */
GLOBAL int has_room_in(struct task_struct *p __arg_trusted, u32 domain)
{
	const struct fair_domain *d = domain_of(domain);
	u32 i, lacks = 0;

	bpf_for(i, 0, d->cpus)
		lacks |= !allows(p, cpu_at(d, i));
	return !lacks;
}

/*
 * A task that may not run on some CPU of its domain waits for the CPU where it is, among those
 * bound there: a queue of the domain may be served by CPUs that it may not have alone.
 */
GLOBAL int update_mask(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		       u32 domain)
{
	struct fair_gang *g = gang_of(t->gang);
	u32 i, allowed = p->nr_cpus_allowed;

	if (t->allowed != allowed) {
		t->room = allowed < nr_cpus ? 0 : ~0ULL;
		t->allowed = allowed;
		if (!t->room)
			bpf_for(i, 0, host.domains)
				t->room |= (u64)has_room_in(p, i) << i;
	}
	t->bound = !(t->room >> domain & 1);
	if (t->gang && !g->wide) {
		if (g->room & ~t->room)
			g->room &= t->room;
		t->bound |= !(t->room >> g->domain & 1);
	}
	return 0;
}

/* How far those bound to @cpu are ahead of its domain. */
static s64 bound_ahead(u32 cpu, u64 now)
{
	const struct fair_cpu *c = cpu_of(cpu);

	return fair_after(clock_at(BOUND_CLOCK | cpu, now) + c->offset, clock_at(c->domain, now));
}

/*
 * The bound of a CPU are one party of the domain: their clock is never further from the domain's
 * than a few turns of the lighter of the two.
 */
GLOBAL int level_bound(u32 cpu, u64 now, bool idle)
{
	struct fair_cpu *c = cpu_of(cpu);
	struct fair_clock *own = clock_of(BOUND_CLOCK | cpu), *all = clock_of(c->domain);
	s64 ahead = bound_ahead(cpu, now);
	u32 nr = *(volatile u32 *)&all->nr;
	u64 w = nr ? *(volatile u64 *)&all->w / nr : FAIR_ONE, own_w = *(volatile u64 *)&own->w;
	s64 most = fair_virtual(4 * TURN_MOST, own_w && own_w < w ? own_w : w);

	if (all->nr <= all->running) { /* nobody waits for what they have too much */
		if (ahead > 0)
			c->offset -= ahead;
	} else if (ahead > most) {
		c->offset -= ahead - most;
	}
	if (idle)
		most = 0;
	if (ahead < -most)
		c->offset += -most - ahead;
	return 0;
}

/*
 * A task of weight @w joins those bound to @cpu. What they owe together it does not make more, in
 * ns, however heavy it is: it ran none of that. What they are owed stays as it is, for a task that
 * comes and goes would take it from them bit by bit.
 */
GLOBAL int dilute_debt(u32 cpu, u64 w, u64 now)
{
	u64 own = *(volatile u64 *)&clock_of(BOUND_CLOCK | cpu)->w, all = own + w;
	s64 ahead = bound_ahead(cpu, now);

	if (ahead > 0)
		cpu_of(cpu)->offset -= ahead - (u64)ahead / (all ? all : 1) * own;
	return 0;
}

/* Beside its own clock @domain counts the tasks bound to its CPUs: @nr more of them, with @w. */
static __always_inline void note_bound(u32 clock, u32 domain, s32 nr, u64 w)
{
	struct fair_domain *d = domain_of(domain);

	if (!(clock & BOUND_CLOCK))
		return;
	if (nr)
		__sync_fetch_and_add(&d->bound_nr, nr);
	if (w)
		__sync_fetch_and_add(&d->bound_w, w);
}

/* Count @t in the clock that it belongs to. */
GLOBAL int clock_enqueue(struct fair_task *t __arg_nonnull, u64 now)
{
	clock_change(t->clock, {
		t->on = 1;
		fair_clock_join(clock, t->w, t->v, now);
	});
	note_bound(t->clock, t->domain, 1, t->w);
	return 0;
}

GLOBAL int clock_dequeue(struct fair_task *t __arg_nonnull, u64 now)
{
	clock_change(t->clock, {
		t->on = 0;
		fair_clock_leave(clock, t->w, t->v, now);
	});
	note_bound(t->clock, t->domain, -1, -t->w);
	return 0;
}

/* @t belongs to @domain, and if it is bound to @cpu, from now on; its lag comes along. Not joined.
 */
GLOBAL int change_clock(struct fair_task *t __arg_nonnull, u32 cpu, u32 domain, u64 now)
{
	u32 clock = t->bound ? BOUND_CLOCK | cpu : domain;
	u64 lag;

	if (clock == t->clock && domain == t->domain)
		return 0;
	lag = v_of(t) - clock_at(t->domain, now);
	if (t->bound && !clock_of(clock)->nr)
		level_bound(cpu, now, true);
	t->clock = clock;
	t->domain = domain;
	t->v = clock_at(domain, now) + lag - (t->bound ? cpu_of(cpu)->offset : 0);
	return 0;
}

/* Where a task begins that becomes runnable beside @clock. */
static u64 place(const struct fair_task *t, u32 domain, u64 clock)
{
	u64 credit = t->origin == TASK_FORKED ? TURN_MOST : t->owed;
	u64 all = *(volatile u64 *)&clock_of(t->clock)->w;
	u64 lag = fair_virtual(most_of(t, domain, credit), t->w);
	u64 floor = clock - lag - (all ? lag * t->w / all : 0);

	if (t->origin == TASK_FOUND)
		return clock;
	return fair_after(t->v, floor) < 0 ? floor : t->v;
}

/* The gang of @t has a runnable member more, or (@by: -1) less. */
static void note_member(const struct fair_task *t, s32 by)
{
	struct fair_gang *g = gang_of(t->gang);

	if (!t->gang)
		return;
	__sync_fetch_and_add(&g->on, by);
	__sync_fetch_and_add(&g->w, by < 0 ? -t->w : t->w);
}

/* ... or weighs @by more. */
static void note_member_weight(const struct fair_task *t, u64 by)
{
	if (t->gang)
		__sync_fetch_and_add(&gang_of(t->gang)->w, by);
}

/* The gang of @t had @ns more, at the weight of its members. */
static __always_inline void note_member_had(const struct fair_task *t, u64 ns)
{
	struct fair_gang *g = gang_of(t->gang);

	if (t->gang)
		g->had += fair_virtual(ns, g->w ? g->w : t->w);
}

/* @t becomes runnable on @cpu. All but its clock, which the caller has it join. */
static void enqueue_task(struct task_struct *p, struct fair_task *t, u32 cpu, u64 now)
{
	u32 domain = cpu_of(cpu)->domain, home = BOUND_CLOCK | cpu;
	u64 clock;

	if (t->bound)
		level_bound(cpu, now, !clock_of(home)->nr);
	change_clock(t, cpu, domain, now);
	if (t->bound) /* of those that it runs among */
		clock = clock_of(home)->nr ? clock_at(home, now) :
					     clock_at(domain, now) - cpu_of(cpu)->offset;
	else
		clock = clock_at(domain, now);
	group_enqueue(t, weight_of(p));
	t->w = flat_weight(t, now);
	if (t->bound)
		dilute_debt(cpu, t->w, now);
	t->v = place(t, domain, clock);
	t->origin = TASK_OLD;
	note_member(t, 1);
}

/* A sleeper keeps the lag that it has, and gains none. */
static __always_inline void note_lag(struct fair_task *t, u64 clock)
{
	s64 lag = fair_after(clock, t->v);
	u64 owed = lag > 0 ? (u64)lag * t->w / FAIR_ONE : 0;

	t->owed = owed < OWED_MOST ? owed : OWED_MOST;
}

/* @gang has no runnable member, so its turn is of no use any more: count that once. */
static void note_idle(u32 gang, u64 now)
{
	struct fair_gang *g = gang_of(gang);

	if (g->on || !turn_is_open(gang, now) || g->early == g->opened)
		return;
	g->early = g->opened;
	count_of(gang, ended_early, 1);
}

/* ... but for its clock, which it has left. */
static __always_inline void dequeue_groups(struct fair_task *t)
{
	group_dequeue(t->group, t->counted);
	note_member(t, -1);
}

/* @t is not runnable any more, or is held. */
GLOBAL int dequeue_task(struct fair_task *t __arg_nonnull, u64 now)
{
	if (!t->on || t->delayed)
		return 0;
	note_lag(t, clock_at(t->clock, now));
	clock_dequeue(t, now);
	dequeue_groups(t);
	return 0;
}

#endif /* RUNNABLE_BPF_H */
