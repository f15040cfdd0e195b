/* SPDX-License-Identifier: GPL-2.0 */
/* A task comes on CPU and leaves it; its clock counts the run time in between. */
#ifndef FAIR_RUN_BPF_H
#define FAIR_RUN_BPF_H

#include "fair/account.bpf.h"

/*
 * Start a task that comes straight to an idle CPU while no task waits. The task owes nothing and is
 * owed nothing, so no clock counts it. Its virtual time is the clock's until a task waits; see
 * enqueue_running().
 */
static __always_inline void set_next_alone(const struct task_struct *p, struct fair_task *t,
					   u32 cache, u64 now)
{
	t->own = weight_of(p);
	if (!t->w)
		t->w = t->own;
	t->clock = t->cache = cache;
	t->origin = TASK_OLD;
	t->v = clock_at(cache, now);
}

/* Start a task that was queued, or that comes while other tasks wait. */
static __always_inline void set_next(struct task_struct *p, struct fair_task *t, u32 cpu, u32 cache,
				     u64 now)
{
	u64 w, by = 0;

	if (t->on_rq && (t->cache != cache || (t->bound && t->clock != (BOUND_CLOCK | cpu)))) {
		clock_dequeue(t, now);
		change_clock(t, cpu, cache, now);
		clock_enqueue(t, now);
	}
	if (!t->on_rq) {
		enqueue_task(p, t, cpu, now);
		clock_enqueue(t, now);
	}
	w = flat_weight(t, now); /* the weight may have changed: the waker may be a sibling */
	clock_change(t->clock, {
		by = reweigh_locked(clock, t, w, now);
		fair_clock_start(clock, now);
	});
	note_weight(t, by);
	if (t->clock & BOUND_CLOCK)
		__sync_fetch_and_add(&cache_of(t->cache)->bound_running, 1);
}

/*
 * Stop a task that ran alone, and has paid nothing. The time that it ran counts if it comes back.
 */
static __always_inline void put_prev_alone(struct fair_task *t, u64 ns)
{
	t->v += fair_virtual(ns, t->w);
	t->owed = 0;
}

/*
 * Charge @t for @ns, and take it out of its clock if it sleeps: at once, or after the ns returned,
 * which its clock takes to reach it. A parent leaves at once: its child pays what it owes.
 */
static __always_inline u64 put_prev(struct fair_task *t, u64 ns, bool sleeps, u64 now)
{
	u64 w = sleeps ? t->w : flat_weight(t, now), by = 0, at = 0, in = 0;
	struct bounds most = bounds_of(t);

	clock_change(t->clock, {
		if (sleeps && !most.lag) {
			fair_clock_drop(clock, t->w, t->v, ns, now);
		} else {
			pay_locked(clock, t, ns, most, now);
			by = reweigh_locked(clock, t, w, now);
			at = fair_clock_at(clock, now);
			in = sleeps && !t->heir ? fair_clock_in(clock, t->v, now) : 0;
			fair_clock_stop(clock, now);
			if (in > FAIR_LEAST)
				fair_clock_sleep(clock);
			else if (sleeps)
				fair_clock_leave(clock, t->w, t->v, now);
		}
		t->on_rq = !sleeps || in > FAIR_LEAST;
	});
	note_weight(t, by);
	if (sleeps) {
		t->owed = 0;
		if (most.lag && !t->on_rq)
			note_lag(t, at);
	}
	return in;
}

#endif /* FAIR_RUN_BPF_H */
