/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Virtual time, and the clock of those who share CPUs.
 *
 * A task of weight w that runs for t ns pays t * FAIR_ONE / w. The clock V of a set of tasks is the
 * weighted mean of the virtual times of all that are runnable, running or waiting: a task with
 * v < V has had less than its share, and the lags w (V - v) of all add up to nothing.
 *
 *     V = v0 + sum / w,    sum = sum of w_i (v_i - v0),    w = sum of w_i
 *
 * The clock is exact at every moment without being touched: a task that runs adds FAIR_ONE a ns to
 * sum, so `running` of them are in it as running * now, less the times at which they began.
 * Arithmetic is modulo 2^64, times of the clock among it; only sums are read as signed.
 *
 * Plain functions: the caller holds whatever lock there is around those that change a clock.
 */
#ifndef FAIR_CLOCK_H
#define FAIR_CLOCK_H

#include "gang_abi.h"

#define FAIR_ONE      65536ULL /* weight of a task of nice 0, and of a group of weight 100 */
#define FAIR_FAR_BITS 28       /* of V - v0, at most; weights have 30 bits, sums of them 34 */

struct fair_clock {
	__u32 seq; /* odd while the words below change */
	__u32 running;
	__u32 nr; /* runnable */
	__u32 pad;
	__u64 sum;
	__u64 w;
	__u64 v0;
	__u64 last; /* V when the last one left */
};

/* How far @a is after @b, both virtual times or both times. */
static inline __s64 fair_after(__u64 a, __u64 b)
{
	return (__s64)(a - b);
}

/* Return the time from @then to @now; 0 if another CPU, whose callback began later, set @then. */
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

/* V at @now. The kernel's BPF has no signed division. */
static inline __u64 fair_clock_at(const volatile struct fair_clock *clock, __u64 now)
{
	__u64 w = clock->w, sum = fair_clock_sum(clock, now);

	if (!w)
		return clock->last;
	return (__s64)sum >= 0 ? clock->v0 + sum / w : clock->v0 - (0 - sum) / w;
}

/* Return the ns until V is @v, at its pace, to whoever leaves a CPU that runs another task then. */
static inline __u64 fair_clock_in(const volatile struct fair_clock *clock, __u64 v, __u64 now)
{
	__s64 ahead = fair_after(v, fair_clock_at(clock, now));

	return ahead > 0 ? ((__u64)ahead >> 8) * clock->w / (clock->running * (FAIR_ONE >> 8)) : 0;
}

/* Move v0 to V before it is so far that a heavy task's part of sum would be out of hand. */
static inline void fair_clock_rebase(struct fair_clock *clock, __u64 now)
{
	__u64 sum = fair_clock_sum(clock, now), most = clock->w << FAIR_FAR_BITS, by;

	if (!clock->w || sum + most < 2 * most)
		return;
	by = fair_clock_at(clock, now) - clock->v0;
	clock->v0 += by;
	clock->sum -= by * clock->w;
}

/* A task becomes runnable with @v. */
static inline void fair_clock_join(struct fair_clock *clock, __u64 w, __u64 v, __u64 now)
{
	fair_clock_rebase(clock, now);
	clock->sum += w * (v - clock->v0);
	clock->w += w;
	clock->nr++;
}

/* A task stays counted that is not runnable any more, ... */
static inline void fair_clock_sleep(struct fair_clock *clock)
{
	clock->nr--;
}

/* ... until it is again, ... */
static inline void fair_clock_wake(struct fair_clock *clock)
{
	clock->nr++;
}

/* ... or is counted no longer. */
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

/* A task of weight @w and virtual time @v leaves that ran for @ns and pays nothing for it. */
static inline void fair_clock_drop(struct fair_clock *clock, __u64 w, __u64 v, __u64 ns, __u64 now)
{
	if (clock->w == w)
		clock->last = fair_clock_at(clock, now);
	clock->sum += (now - ns) * FAIR_ONE - w * (v - clock->v0);
	clock->running--;
	clock->w -= w;
	clock->nr--;
}

/* A runnable task of weight @w has virtual time @to from now on, not @from. */
static inline void fair_clock_shift(struct fair_clock *clock, __u64 w, __u64 from, __u64 to)
{
	clock->sum += w * (to - from);
}

/*
 * A runnable task with @v weighs @to from now on, not @w. It keeps its lag in ns, so V stays where
 * it is, as in reweight_entity() of kernel/sched/fair.c. Returns the task's virtual time.
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
 * A running task of weight @w pays for @ns, by which the clock has already moved: all that changes
 * is what the division leaves over. The virtual time it pays.
 */
static inline __u64 fair_clock_pay(struct fair_clock *clock, __u64 w, __u64 ns)
{
	__u64 by = fair_virtual(ns, w);

	clock->sum -= ns * FAIR_ONE - by * w;
	return by;
}

#endif /* FAIR_CLOCK_H */
