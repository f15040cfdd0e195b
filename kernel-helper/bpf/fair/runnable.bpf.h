/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task that becomes runnable is enqueued in a clock and in its groups; a task that ceases to be
 * runnable is dequeued.
 *
 * A task that wakes is placed at the clock, less what it was owed when it went to sleep. A child
 * begins with its parent's debt.
 */
#ifndef FAIR_RUNNABLE_BPF_H
#define FAIR_RUNNABLE_BPF_H

#include "fair/bound.bpf.h"
#include "fair/weight.bpf.h"
#include "state/member.bpf.h"

#define OWED_MOST (12 * MSEC) /* ns of lag that a sleeping task keeps, at most */

static u32 weight_of(const struct task_struct *p)
{
	return p->policy == SCHED_IDLE ? FAIR_IDLE_WEIGHT : fair_nice_weight(p->static_prio - 100);
}

/*
 * Count @t in the clock that it belongs to. The first of the tasks bound to a CPU moves the offset
 * of their clock, and not the clock: tasks that sleep have their virtual times by it, and would owe
 * what others were owed there.
 */
GLOBAL int clock_enqueue(struct fair_task *t __arg_nonnull, u64 now)
{
	struct fair_cpu *c = cpu_of(t->clock);
	bool bound = t->clock & BOUND_CLOCK;

	clock_change(t->clock, {
		t->on_rq = 1;
		if (bound && !clock->w) {
			c->offset += t->v - clock->last;
			t->v = clock->last;
		}
		fair_clock_join(clock, t->w, t->v, now);
	});
	note_bound(t->clock, t->cache, 1, t->w);
	return 0;
}

GLOBAL int clock_dequeue(struct fair_task *t __arg_nonnull, u64 now)
{
	clock_change(t->clock, {
		t->on_rq = 0;
		fair_clock_leave(clock, t->w, t->v, now);
	});
	note_bound(t->clock, t->cache, -1, -t->w);
	return 0;
}

/*
 * Move @t to @cache, and to the clock of @cpu if it is bound; its lag comes along. No clock counts
 * @t meanwhile: the caller enqueues it.
 */
GLOBAL int change_clock(struct fair_task *t __arg_nonnull, u32 cpu, u32 cache, u64 now)
{
	u32 clock = t->bound ? BOUND_CLOCK | cpu : cache;
	u64 lag;

	if (clock == t->clock && cache == t->cache)
		return 0;
	lag = v_of(t) - clock_at(t->cache, now);
	if (t->bound && !clock_of(clock)->nr)
		level_bound(cpu, now, true);
	t->clock = clock;
	t->cache = cache;
	t->v = clock_at(cache, now) + lag - (t->bound ? cpu_of(cpu)->offset : 0);
	return 0;
}

/* Return the virtual time at which @t becomes runnable in @cache, beside tasks at @clock. */
static u64 place(const struct fair_task *t, u32 cache, u64 clock)
{
	u64 credit = t->origin == TASK_FORKED ? TURN_MOST : t->owed;
	u64 all = *(volatile u64 *)&clock_of(t->clock)->w;
	u64 lag = fair_virtual(most_of(t, cache, credit), t->w);
	u64 floor = clock - lag - (all ? lag * t->w / all : 0);

	if (t->origin == TASK_FOUND)
		return clock;
	return fair_after(t->v, floor) < 0 ? floor : t->v;
}

/*
 * Enqueue @t, which becomes runnable on @cpu, in its groups, and place it. The caller enqueues it
 * in its clock.
 */
static void enqueue_task(struct task_struct *p, struct fair_task *t, u32 cpu, u64 now)
{
	u32 cache = cpu_of(cpu)->cache, home = BOUND_CLOCK | cpu;
	u64 clock;

	if (t->bound)
		level_bound(cpu, now, !clock_of(home)->nr);
	change_clock(t, cpu, cache, now);
	if (t->bound) /* the clock of the tasks that @t runs among */
		clock = clock_of(home)->nr ? clock_at(home, now) :
					     clock_at(cache, now) - cpu_of(cpu)->offset;
	else
		clock = clock_at(cache, now);
	group_enqueue(t, weight_of(p));
	t->w = flat_weight(t, now);
	if (t->bound)
		dilute_debt(cpu, t->w, now);
	t->v = place(t, cache, clock);
	t->origin = TASK_OLD;
	note_member(t, 1);
}

/*
 * Record the lag of @t, which goes to sleep at @clock. A sleeping task keeps its lag, and gains
 * none.
 */
static __always_inline void note_lag(struct fair_task *t, u64 clock)
{
	s64 lag = fair_after(clock, t->v);
	u64 owed = lag > 0 ? (u64)lag * t->w / FAIR_ONE : 0;

	t->owed = owed < OWED_MOST ? owed : OWED_MOST;
}

/*
 * Dequeue @t from its groups, and count a runnable member less. The caller has taken @t out of its
 * clock.
 */
static __always_inline void dequeue_groups(struct fair_task *t)
{
	group_dequeue(t->group, t->counted);
	note_member(t, -1);
}

/* Dequeue @t, which is not runnable any more, or is throttled. */
GLOBAL int dequeue_task(struct fair_task *t __arg_nonnull, u64 now)
{
	if (!t->on_rq || t->delayed)
		return 0;
	note_lag(t, clock_at(t->clock, now));
	clock_dequeue(t, now);
	dequeue_groups(t);
	return 0;
}

#endif /* FAIR_RUNNABLE_BPF_H */
