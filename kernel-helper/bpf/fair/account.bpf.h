/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task pays for what it runs, at its weight, and its groups pay with it: the weights of their
 * tasks add up to theirs.
 *
 * No task is further behind the clock than a few turns, nor further ahead than that or DEBT_MOST.
 * While no task waits, no task owes anything, and none is owed anything.
 */
#ifndef FAIR_ACCOUNT_BPF_H
#define FAIR_ACCOUNT_BPF_H

#include "fair/delayed.bpf.h"
#include "fair/quota.bpf.h"
#include "state/stats.bpf.h"

#define LAG_MOST  (4 * TURN_MOST)
#define DEBT_MOST (600 * MSEC) /* of the clock's progress while all CPUs run */

/* The virtual time that a task may be behind its clock, and ahead of it. */
struct bounds {
	u64 lag, debt;
};

/*
 * Return the virtual time that a task may be ahead if it may be @lag behind. A heavy task runs
 * ahead of light tasks that are owed more, because its deadline hides theirs, until it is as far as
 * their deadlines. If a part of this debt were forgiven before, the light tasks would never get
 * that time.
 */
static __always_inline u64 debt_most(u32 cache, u64 lag)
{
	u64 far = fair_virtual(DEBT_MOST * cache_of(cache)->cpus, weight_in(cache));

	return lag > far ? lag : far;
}

/* Return the bounds of @t; 0 and 0 if no task waits, since then no task owes anything. */
static __always_inline struct bounds bounds_of(const struct fair_task *t)
{
	const struct fair_clock *k = clock_of(t->clock);
	struct bounds most = {};

	if (*(volatile u32 *)&k->nr <= *(volatile u32 *)&k->running && !waits_in(t->cache))
		return most;
	most.lag = fair_virtual(most_of(t, t->cache, LAG_MOST), t->w);
	most.debt = debt_most(t->cache, most.lag);
	return most;
}

/*
 * Give @t the weight @w, and return by how much its weight grew. The caller holds the clock's lock.
 */
static __always_inline u64 reweigh_locked(struct fair_clock *clock, struct fair_task *t, u64 w,
					  u64 now)
{
	u64 by = w - t->w;

	if (by)
		t->v = fair_clock_reweigh(clock, t->w, w, t->v, now);
	t->w = w;
	return by;
}

/* Charge @t for @ns, and keep it within @most of the clock. The caller holds the clock's lock. */
static __always_inline void pay_locked(struct fair_clock *clock, struct fair_task *t, u64 ns,
				       struct bounds most, u64 now)
{
	u64 at, to;

	t->v += fair_clock_pay(clock, t->w, ns);
	at = fair_clock_at(clock, now);
	to = t->v;
	if (fair_after(to, at + most.debt) > 0)
		to = at + most.debt;
	else if (fair_after(to, at - most.lag) < 0)
		to = at - most.lag;
	fair_clock_shift(clock, t->w, t->v, to);
	t->v = to;
}

/*
 * Add @by, the change of the weight of @t, to the sums of weights that are kept beside the clock.
 */
static __always_inline void note_weight(const struct fair_task *t, u64 by)
{
	if (!by)
		return;
	note_bound(t->clock, t->cache, 0, by);
	note_member_weight(t, by);
}

/* Charge the accounts beside the clock for the @ns that @t ran. */
static __always_inline void note_ran(struct fair_task *t, u64 ns)
{
	note_member_had(t, ns);
	if (limited(t))
		use_quota(t->group, ns);
	t->ran += ns;
	if (t->ran > t->burst)
		t->burst = t->ran;
}

/* Count the task that runs alone on @c, from its start on: a task waits now. */
static void enqueue_running(const struct fair_cpu *c, struct fair_task *t, u64 now)
{
	group_enqueue(t, t->own);
	t->w = flat_weight(t, now);
	note_member(t, 1);
	clock_change(t->clock, {
		t->on_rq = 1;
		fair_clock_join(clock, t->w, t->v, now);
		fair_clock_start(clock, c->start);
	});
}

/*
 * Charge the task that runs on @cpu up to @now, and update its weight. Return 0 if the task runs
 * alone and owes nothing.
 */
GLOBAL int account(u32 cpu, struct fair_task *t __arg_nonnull, u64 now)
{
	struct fair_cpu *c = cpu_of(cpu);
	u64 ns = now - c->start, w, by = 0;
	struct bounds most;

	if (!t->on_rq) {
		if (!waits_in(c->cache)) {
			c->start = now;
			c->v = t->v = clock_at(c->cache, now);
			note_ran(t, ns);
			return 0;
		}
		enqueue_running(c, t, now);
	}
	most = bounds_of(t);
	w = flat_weight(t, now);
	c->start = now;
	note_member_ran(c, t, ns, now);
	clock_change(t->clock, {
		pay_locked(clock, t, ns, most, now);
		by = reweigh_locked(clock, t, w, now);
	});
	note_weight(t, by);
	note_ran(t, ns);
	if (t->clock & BOUND_CLOCK)
		level_bound(cpu, now, false);
	c->v = v_of(t);
	c->w = t->w;
	c->ask = c->ask > ns ? c->ask - ns : 0;
	return 1;
}

/* Update the mean burst and the mean use of @t: its time between two sleeps ends. */
static void note_sleep(struct fair_task *t, u64 now)
{
	t->burst = t->burst >= FAIR_NEVER ? t->ran : (t->burst * 3 + t->ran) / 4;
	if (t->burst > FAIR_SLICE) { /* is_brief() looks at util only then */
		u64 used = (t->ran >> 4) * (FAIR_CPU >> 4) / ((fair_since(t->slept, now) >> 8) + 1);

		t->util = (t->util * 3 + (used < FAIR_CPU ? used : FAIR_CPU)) / 4;
	}
	t->slept = now;
	t->ran = 0;
	t->heir = false;
}

#endif /* FAIR_ACCOUNT_BPF_H */
