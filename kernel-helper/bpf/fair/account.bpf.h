/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task pays for what it runs, at its weight, and so do its groups: the weights of their tasks add
 * up to theirs.
 *
 * No task is further behind the clock than a few turns, nor further ahead than that or DEBT_MOST;
 * where no task waits none owes or is owed anything.
 */
#ifndef FAIR_ACCOUNT_BPF_H
#define FAIR_ACCOUNT_BPF_H

#include "fair/delayed.bpf.h"
#include "fair/quota.bpf.h"
#include "state/stats.bpf.h"

#define LAG_MOST  (4 * TURN_MOST)
#define DEBT_MOST (600 * MSEC) /* of the clock */

/* The virtual time that a task may be behind its clock, and ahead of it. */
struct bounds {
	u64 lag, debt;
};

/*
 * The virtual time that a task may be ahead which may be @lag behind. A heavy task runs ahead of
 * light ones that are owed more, for its deadline hides theirs, until it is as far as those: what
 * were forgiven it before, they would never have.
 */
static __always_inline u64 debt_most(u32 domain, u64 lag)
{
	u64 far = fair_virtual(DEBT_MOST * domain_of(domain)->cpus, weight_in(domain));

	return lag > far ? lag : far;
}

/* 0 and 0: nobody waits, and nobody owes anything. */
static __always_inline struct bounds bounds_of(const struct fair_task *t)
{
	const struct fair_clock *k = clock_of(t->clock);
	struct bounds most = {};

	if (*(volatile u32 *)&k->nr <= *(volatile u32 *)&k->running && !waits_in(t->domain))
		return most;
	most.lag = fair_virtual(most_of(t, t->domain, LAG_MOST), t->w);
	most.debt = debt_most(t->domain, most.lag);
	return most;
}

/* @t weighs @w from now on; by how much more. Locked. */
static __always_inline u64 reweigh_locked(struct fair_clock *clock, struct fair_task *t, u64 w,
					  u64 now)
{
	u64 by = w - t->w;

	if (by)
		t->v = fair_clock_reweigh(clock, t->w, w, t->v, now);
	t->w = w;
	return by;
}

/* Pay for @ns, and stay within @most of the clock. Locked. */
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

/* Those that count weights beside the clock learn of a new one. */
static __always_inline void note_weight(const struct fair_task *t, u64 by)
{
	if (!by)
		return;
	note_bound(t->clock, t->domain, 0, by);
	note_member_weight(t, by);
}

/* The accounts beside the clock learn that a task ran for @ns. */
static __always_inline void note_ran(struct fair_task *t, u64 ns)
{
	note_member_had(t, ns);
	if (limited(t))
		use_quota(t->group, ns);
	t->ran += ns;
	if (t->ran > t->burst)
		t->burst = t->ran;
}

/* The task that runs alone on @c is counted from its start on: somebody waits. */
static void enqueue_running(const struct fair_cpu *c, struct fair_task *t, u64 now)
{
	group_enqueue(t, t->own);
	t->w = flat_weight(t, now);
	note_member(t, 1);
	clock_change(t->clock, {
		t->on = 1;
		fair_clock_join(clock, t->w, t->v, now);
		fair_clock_start(clock, c->start);
	});
}

/*
 * The task that runs on @cpu pays up to now, and its weight is looked at again. 0: it runs alone,
 * and owes nothing.
 */
GLOBAL int account(u32 cpu, struct fair_task *t __arg_nonnull, u64 now)
{
	struct fair_cpu *c = cpu_of(cpu);
	u64 ns = now - c->start, w, by = 0;
	struct bounds most;

	if (!t->on) {
		if (!waits_in(c->domain)) {
			c->start = now;
			c->v = t->v = clock_at(c->domain, now);
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

/* Between two sleeps: how long it ran, of how long. */
static void note_sleep(struct fair_task *t, u64 now)
{
	t->burst = t->burst >= FAIR_NEVER ? t->ran : (t->burst * 3 + t->ran) / 4;
	if (t->burst > FAIR_SLICE) { /* else nobody asks */
		u64 used = (t->ran >> 4) * (FAIR_CPU >> 4) / ((fair_since(t->slept, now) >> 8) + 1);

		t->util = (t->util * 3 + (used < FAIR_CPU ? used : FAIR_CPU)) / 4;
	}
	t->slept = now;
	t->ran = 0;
	t->heir = false;
}

#endif /* FAIR_ACCOUNT_BPF_H */
