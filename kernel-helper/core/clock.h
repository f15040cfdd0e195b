/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Virtual time, and the clock of a set of tasks that share CPUs.
 *
 * A task of weight w that runs for t ns pays t * FAIR_ONE / w of virtual time. The clock V of the
 * set is the weighted mean of the virtual times of its runnable tasks, running or waiting. A task
 * with v < V has had less than its share: its lag is w (V - v), and the lags of all tasks add up to
 * zero.
 *
 *     V = v0 + sum / w,    sum = sum of w_i (v_i - v0),    w = sum of w_i
 *
 * The clock is exact at every moment, and no CPU touches it for that. A running task adds FAIR_ONE
 * a ns to the sum: a reader adds `now` for each of the `running` tasks, and the start of each task
 * has subtracted the time at which it began. Arithmetic is modulo 2^64, also that on times; only
 * sums are read as signed.
 *
 * The functions are plain: the caller holds the lock of a clock, if there is one, around each
 * function that changes the clock.
 */
#ifndef FAIR_CLOCK_H
#define FAIR_CLOCK_H

#include "gang_abi.h"

#define FAIR_ONE 65536ULL /* weight of a task of nice 0, and of a group of weight 100 */
/* bits of V - v0, at most; a weight has 30 bits, a sum of weights 34 */
#define FAIR_FAR_BITS 28

struct fair_clock {
	__u32 seq; /* odd while a CPU changes the words below */
	__u32 running;
	__u32 nr; /* runnable tasks */
	__u32 pad;
	__u64 sum;
	__u64 w;
	__u64 v0;
	__u64 last; /* V when the last task left */
};

/* Return how far @a is after @b; both are virtual times, or both are times. */
static inline __s64 fair_after(__u64 a, __u64 b)
{
	return (__s64)(a - b);
}

/* Return the time from @then to @now; 0 if another CPU set @then in a callback that began later. */
static inline __u64 fair_since(__u64 then, __u64 now)
{
	return fair_after(now, then) > 0 ? now - then : 0;
}

/* Return the virtual time that a task of weight @w pays for @ns of CPU time. */
static inline __u64 fair_virtual(__u64 ns, __u64 w)
{
	return ns * FAIR_ONE / (w ? w : 1);
}

static inline __u64 fair_clock_sum(const volatile struct fair_clock *clock, __u64 now)
{
	return clock->sum + clock->running * (now * FAIR_ONE);
}

/* Return V at @now. The division is unsigned, since the kernel's BPF has no signed one. */
static inline __u64 fair_clock_at(const volatile struct fair_clock *clock, __u64 now)
{
	__u64 w = clock->w, sum = fair_clock_sum(clock, now);

	if (!w)
		return clock->last;
	return (__s64)sum >= 0 ? clock->v0 + sum / w : clock->v0 - (0 - sum) / w;
}

/*
 * Return the ns until V is @v, if as many tasks run as now: a task that is about to leave its CPU
 * asks, and another task runs there next.
 */
static inline __u64 fair_clock_in(const volatile struct fair_clock *clock, __u64 v, __u64 now)
{
	__s64 ahead = fair_after(v, fair_clock_at(clock, now));

	return ahead > 0 ? ((__u64)ahead >> 8) * clock->w / (clock->running * (FAIR_ONE >> 8)) : 0;
}

/*
 * Move v0 to V before the two are so far apart that a heavy task's part of the sum could overflow.
 */
static inline void fair_clock_rebase(struct fair_clock *clock, __u64 now)
{
	__u64 sum = fair_clock_sum(clock, now), most = clock->w << FAIR_FAR_BITS, by;

	if (!clock->w || sum + most < 2 * most)
		return;
	by = fair_clock_at(clock, now) - clock->v0;
	clock->v0 += by;
	clock->sum -= by * clock->w;
}

/* Count a task of weight @w and virtual time @v, which becomes runnable. */
static inline void fair_clock_join(struct fair_clock *clock, __u64 w, __u64 v, __u64 now)
{
	fair_clock_rebase(clock, now);
	clock->sum += w * (v - clock->v0);
	clock->w += w;
	clock->nr++;
}

/* Keep a task counted that went to sleep, but not among the runnable tasks. */
static inline void fair_clock_sleep(struct fair_clock *clock)
{
	clock->nr--;
}

/* Count a sleeping task among the runnable tasks again. */
static inline void fair_clock_wake(struct fair_clock *clock)
{
	clock->nr++;
}

/* Take a sleeping task of weight @w and virtual time @v out of the clock. */
static inline void fair_clock_remove(struct fair_clock *clock, __u64 w, __u64 v, __u64 now)
{
	if (clock->w == w)
		clock->last = fair_clock_at(clock, now);
	clock->sum -= w * (v - clock->v0);
	clock->w -= w;
}

static inline void fair_clock_leave(struct fair_clock *clock, __u64 w, __u64 v, __u64 now)
{
	fair_clock_remove(clock, w, v, now);
	clock->nr--;
}

/*
 * Take a running task of weight @w and virtual time @v out, which pays nothing for the @ns it ran.
 */
static inline void fair_clock_drop(struct fair_clock *clock, __u64 w, __u64 v, __u64 ns, __u64 now)
{
	if (clock->w == w)
		clock->last = fair_clock_at(clock, now);
	clock->sum += (now - ns) * FAIR_ONE - w * (v - clock->v0);
	clock->running--;
	clock->w -= w;
	clock->nr--;
}

/* Change the virtual time of a counted task of weight @w from @from to @to. */
static inline void fair_clock_shift(struct fair_clock *clock, __u64 w, __u64 from, __u64 to)
{
	clock->sum += w * (to - from);
}

/*
 * Change the weight of a runnable task with virtual time @v from @w to @to, and return its new
 * virtual time. The task keeps its lag in ns, so V stays where it is, as in reweight_entity() of
 * kernel/sched/fair.c.
 */
static inline __u64 fair_clock_reweigh(struct fair_clock *clock, __u64 w, __u64 to, __u64 v,
				       __u64 now)
{
	__u64 at = fair_clock_at(clock, now), was = v;
	__s64 ahead = fair_after(v, at);

	fair_clock_rebase(clock, now);
	v = ahead > 0 ? at + (__u64)ahead * w / to : at - (__u64)-ahead * w / to;
	clock->sum += to * (v - clock->v0) - w * (was - clock->v0);
	clock->w += to - w;
	return v;
}

static inline void fair_clock_start(struct fair_clock *clock, __u64 now)
{
	clock->sum -= now * FAIR_ONE;
	clock->running++;
}

static inline void fair_clock_stop(struct fair_clock *clock, __u64 now)
{
	clock->sum += now * FAIR_ONE;
	clock->running--;
}

/*
 * Charge a running task of weight @w for @ns, and return the virtual time that it pays. The clock
 * has already moved by that: only the remainder of the division changes the sum.
 */
static inline __u64 fair_clock_pay(struct fair_clock *clock, __u64 w, __u64 ns)
{
	__u64 by = fair_virtual(ns, w);

	clock->sum -= ns * FAIR_ONE - by * w;
	return by;
}

#endif /* FAIR_CLOCK_H */
