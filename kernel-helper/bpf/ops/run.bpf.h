/* SPDX-License-Identifier: GPL-2.0 */
/* A task comes on CPU, with a slice, and leaves it. */
#ifndef OPS_RUN_BPF_H
#define OPS_RUN_BPF_H

#include "fair/run.bpf.h"
#include "gang/affinity.bpf.h"
#include "gang/core.bpf.h"
#include "ops/throttle.bpf.h"

/* Return how long a task may run on @cpu if nothing happens. */
static __always_inline u64 slice_of(u32 cpu, const struct fair_task *t, u64 now)
{
	const struct fair_cpu *c = cpu_of(cpu);
	u64 slice = FAIR_SLICE;

	if (t->gang && c->turn == t->gang && in_turn(c, now))
		slice = c->until - now;
	if (!waits_in(c->cache) && slice < turn_ns)
		slice = turn_ns; /* enqueue() and tick() notice any task that comes */
	if (limited(t)) {
		u64 left = quota_left(t->group) / host.cpus;

		if (slice > FAIR_SLICE)
			slice = FAIR_SLICE;
		if (slice > left) /* 0: the group used up its quota since the task was queued */
			slice = left;
	}
	slice = most_of(t, c->cache, slice);
	return slice > FAIR_LEAST ? slice : FAIR_LEAST; /* the kernel makes 20 ms of 0 */
}

/*
 * Arm the timer of @cpu for a short slice, or for the end of a turn on a lent CPU: the kernel sees
 * the end of a slice only at its ticks.
 */
static void arm_slice(u32 cpu, struct fair_cpu *c, u64 slice, u64 now)
{
	u64 at = 0;

	if (c->lent && in_turn(c, now))
		at = c->turn == c->gang ? c->until : 0;
	else if (slice < FAIR_SLICE / 2)
		at = now + slice;
	c->short_end = 0;
	if (at)
		arm_timer(cpu, at);
}

static int on_slice(void *map, u32 *key, struct fair_timer *timer)
{
	struct fair_cpu *c = cpu_of(*key);

	if (c->short_end && fair_after(bpf_ktime_get_ns(), c->short_end) >= 0) {
		c->short_end = 0;
		interrupt(*key);
	}
	return 0;
}

/*
 * Count a member that the turn waits for, and that is on CPU now. When the last one arrives, record
 * the start skew.
 */
static void arrive_in_turn(u32 gang, u64 now)
{
	struct fair_gang *g = gang_of(gang);
	s32 awaited = g->awaited > 0 ? __sync_fetch_and_add(&g->awaited, -1) : 0;

	if (awaited > 0)
		count_of(gang, seats_had, 1);
	if (awaited == 1)
		note_whole(gang, fair_since(g->opened, now));
}

SEC("struct_ops/gang_running")
void BPF_PROG(gang_running, struct task_struct *p)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns(), slice;
	bool alone;

	if (!t)
		return;
	if (t->delayed)
		requeue_delayed(t, now);
	follow_group(p, t);
	catch_loose(t);
	update_mask(p, t, c->cache);
	alone = !t->on_rq && !t->bound && !t->gang && !waits_in(c->cache);
	if (alone)
		set_next_alone(p, t, c->cache, now);
	else
		set_next(p, t, cpu, c->cache, now);
	c->w = t->w;
	c->v = v_of(t);
	c->start = c->came = now;
	c->gang = t->gang;
	c->bound = t->bound;
	c->pid = p->pid;
	c->exempt = !!(p->flags & PF_KTHREAD);
	c->buddy = 0;
	if (alone && !quotas && !strict_gangs) {
		c->ask = fair_request(t->burst, FAIR_SLICE);
		c->manner = t->burst <= FAIR_SLICE ? MANNER_BRIEF : MANNER_LONG;
		c->short_end = 0;
		set_slice(p, turn_ns); /* enqueue() and tick() notice any task that comes */
		return;
	}
	if (turn_is_open(t->gang, now)) {
		if (!(c->lent && in_turn(c, now)))
			give_turn(cpu, t->gang, false);
		arrive_in_turn(t->gang, now);
	}
	c->ask = ask_of(t, c->cache, now);
	c->manner = manner_of(t, now);
	slice = slice_of(cpu, t, now);
	set_slice(p, slice);
	arm_slice(cpu, c, slice, now);
	if (!strict_gangs || c->exempt)
		return;
	if (!stays_on_core(cpu, t->gang, now)) {
		count(core_shared);
		evict(cpu);
	}
	if (beside(cpu)->outdone)
		tell_core(cpu, t->gang);
}

/* Saturating counter, 0 to 7: count up on an event, down otherwise. */
static void learn(u8 *often, bool happened)
{
	if (happened)
		*often += *often < 7;
	else
		*often -= *often > 0;
}

static __always_inline void stop(struct task_struct *p, bool runnable)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns(), ns = now - c->start, in = 0;
	bool counted;

	if (!t || !c->start)
		return;
	counted = t->on_rq;
	if (counted)
		in = put_prev(t, ns, !runnable, now);
	else
		put_prev_alone(t, ns);
	note_ran(t, ns);
	note_member_ran(c, t, ns, now);
	if (strict_gangs && holds_idle(cpu, t->gang)) {
		set_v(t, v_of(t) + fair_virtual(ns, t->w));
		count_of(t->gang, forced_idle_ns, ns);
	}
	if (counted && t->clock & BOUND_CLOCK) {
		__sync_fetch_and_add(&cache_of(t->cache)->bound_running, -1);
		level_bound(cpu, now, false);
	}
	/*
	 * the next task does not pass dispatch(): claim the core before this task is seen to stop
	 */
	if (strict_gangs && !c->core_claim && scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu) > 0)
		c->core_claim = CLAIM_ANY;
	c->start = 0;
	c->gang = 0;
	c->pid = 0;
	if (strict_gangs)
		tell_core(cpu, t->gang);
	else /* strict: dispatch() may have set it, to look at the queues again */
		c->short_end = 0;
	if (runnable)
		return;
	if (counted) {
		if (t->on_rq) {
			delay_dequeue(t, cpu, in, now);
		} else {
			note_bound(t->clock, t->cache, -1, -t->w);
			dequeue_groups(t);
		}
		if (t->gang)
			note_idle(t->gang, now);
	}
	t->throttled = 0;
	learn(&t->hands, t->woke_kin && fair_since(t->woke, now) < FAIR_LEAST);
	learn(&t->passes, !t->woke_kin && fair_since(t->woke, now) < FAIR_LEAST);
	note_sleep(t, now);
}

SEC("struct_ops/gang_stopping")
void BPF_PROG(gang_stopping, struct task_struct *p, bool runnable)
{
	begin_sample(stops);
	stop(p, runnable);
	end_sample(stop);
}

#endif /* OPS_RUN_BPF_H */
