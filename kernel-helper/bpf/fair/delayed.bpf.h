/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task that sleeps ahead of its clock stays counted, in the clock and in its groups, until the
 * clock has reached it: delayed dequeue (kernel/sched/fair.c since 6.12). The task therefore pays
 * by its own weight for what it ran, whether it sleeps or not, and no other task pays for it.
 * Siblings that run in turn have no more than their group's share.
 *
 * Each CPU remembers the last tasks that went to sleep there.
 */
#ifndef FAIR_DELAYED_BPF_H
#define FAIR_DELAYED_BPF_H

#include "fair/runnable.bpf.h"

#define DELAYED 16 /* delayed tasks of a CPU; the oldest one makes room */

struct fair_delayed {
	/* when the task went to sleep: the CPU that swaps it for 0 has the task; 0: taken */
	u64 ticket;
	u64 v, w;  /* values that the clock counts */
	u64 until; /* when the clock reaches the task */
	u32 clock, group, counted;
};

static struct fair_delayed delayed[GANG_MAX_CPUS * DELAYED];

static struct fair_delayed *delayed_of(u32 place)
{
	barrier_var(place);
	return &delayed[place & (GANG_MAX_CPUS * DELAYED - 1)];
}

static bool take_ticket(struct fair_delayed *d, u32 place, u64 ticket)
{
	if (!ticket || __sync_val_compare_and_swap(&d->ticket, ticket, 0) != ticket)
		return false;
	__sync_fetch_and_add(&cpu_of(place / DELAYED)->delayed, -1);
	return true;
}

/* Take the delayed task at @place out of its clock and groups, unless it woke. */
GLOBAL int finish_delayed(u32 place, u64 now)
{
	struct fair_delayed *d = delayed_of(place);
	u64 ticket = *(volatile u64 *)&d->ticket, v = d->v, w = d->w;
	u32 id = d->clock, group = d->group, counted = d->counted;

	if (!take_ticket(d, place, ticket))
		return 0;
	clock_change(id, fair_clock_remove(clock, w, v, now));
	note_bound(id, cpu_of(id)->cache, 0, -w);
	group_dequeue(group, counted);
	return 0;
}

/*
 * Take out the delayed tasks of @cpu that their clocks have reached. Return when to look again; 0:
 * never.
 */
GLOBAL u64 finish_delayed_of(u32 cpu, u64 now)
{
	u64 next = 0;
	u32 i;

	if (!*(volatile u32 *)&cpu_of(cpu)->delayed)
		return 0;
	bpf_for(i, 0, DELAYED) {
		u32 place = cpu * DELAYED + i;
		const struct fair_delayed *d = delayed_of(place);
		u64 until = d->until;

		if (!*(volatile u64 *)&d->ticket)
			continue;
		if (fair_after(until, now) <= 0)
			finish_delayed(place, now);
		else if (!next || fair_after(until, next) < 0)
			next = until;
	}
	return next;
}

static void arm_delayed(u32 cpu, u64 at)
{
	struct fair_timer *timer = bpf_map_lookup_elem(&delay_timers, &cpu);

	cpu_of(cpu)->look_at = at;
	if (timer)
		bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS);
}

static int on_delayed(void *map, u32 *key, struct fair_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), next;

	cpu_of(*key)->look_at = 0;
	next = finish_delayed_of(*key, now);
	if (next)
		arm_delayed(*key, next > now + FAIR_LEAST ? next : now + FAIR_LEAST);
	return 0;
}

/* Keep @t, which went to sleep on @cpu at @now, counted for @in ns more. */
static __always_inline void delay_dequeue(struct fair_task *t, u32 cpu, u64 in, u64 now)
{
	struct fair_cpu *c = cpu_of(cpu);
	u32 place = cpu * DELAYED + c->place++ % DELAYED;
	struct fair_delayed *d = delayed_of(place);
	u64 until = now + in, look = *(volatile u64 *)&c->look_at;

	finish_delayed(place, now);
	d->v = t->v;
	d->w = t->w;
	d->until = until;
	d->clock = t->clock;
	d->group = t->group;
	d->counted = t->counted;
	t->delayed = place + 1;
	__sync_fetch_and_add(&c->delayed, 1);
	/* note_sleep() sets t->slept to the same value */
	__sync_lock_test_and_set(&d->ticket, now);
	note_bound(t->clock, t->cache, -1, 0);
	note_member(t, -1);
	if (!look || fair_after(until, look) < -(s64)FAIR_LEAST)
		arm_delayed(cpu, until);
}

/*
 * Make a delayed task that wakes runnable again. The task stays counted as it was, unless it has
 * been taken out meanwhile.
 */
GLOBAL int requeue_delayed(struct fair_task *t __arg_nonnull, u64 now)
{
	u32 place = t->delayed - 1;
	u64 at, v = t->v;

	t->delayed = 0;
	if (!take_ticket(delayed_of(place), place, t->slept)) {
		t->on_rq = 0;
		return 0;
	}
	at = clock_at(t->clock, now);
	if (fair_after(at, v) > 0) /* a task that slept for longer than it had to gains nothing */
		v = at;
	clock_change(t->clock, {
		fair_clock_shift(clock, t->w, t->v, v);
		fair_clock_wake(clock);
		t->v = v;
	});
	note_bound(t->clock, t->cache, 1, 0);
	note_member(t, 1);
	return 0;
}

#endif /* FAIR_DELAYED_BPF_H */
