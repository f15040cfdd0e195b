/* SPDX-License-Identifier: GPL-2.0 */
/* A runnable task is sent to a CPU, or waits in a queue. */
#ifndef OPS_ENQUEUE_BPF_H
#define OPS_ENQUEUE_BPF_H

#include "gang/balance.bpf.h"
#include "gang/help.bpf.h"
#include "gang/turn.bpf.h"
#include "ops/arrival.bpf.h"
#include "ops/throttle.bpf.h"

/*
 * Return an idle CPU for a task for which the kernel did not look for one; NOBODY if there is none.
 */
GLOBAL u32 idle_for(struct task_struct *p __arg_trusted, const struct fair_task *t __arg_nonnull,
		    const struct arrival *a __arg_nonnull)
{
	bool looked = (a->flags & ENQ_WAKEUP) && (a->flags & ENQ_CPU_SELECTED);
	struct fair_cpu *c = cpu_of(a->cpu);
	s32 idle = -1;

	if (a->full || (a->flags & ENQ_REENQ))
		return NOBODY;
	if (t->bound || !looked) {
		if (!c->start && scx_bpf_test_and_clear_cpu_idle(a->cpu))
			idle = a->cpu;
		else if (!looked && p->nr_cpus_allowed > 1)
			idle = take_idle_cpu(p);
	}
	return idle >= 0 && may_run(p, idle) && !has_real_time(idle) &&
			       ((p->flags & PF_KTHREAD) || may_send(idle, t->gang, a->now)) ?
		       (u32)idle :
		       NOBODY;
}

/*
 * Seat a member in its turn again after a sibling took over its CPU; return false if there is no
 * seat.
 */
GLOBAL bool take_seat(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		      const struct arrival *a __arg_nonnull)
{
	bool lent = false;
	u32 at;

	if (!a->turn || (a->flags & (ENQ_WAKEUP | ENQ_REENQ)))
		return false;
	at = find_seat(p, t, a->cache, gang_of(t->gang), &lent, a->now);
	if (at == NOBODY || at == a->cpu || !may_send(at, t->gang, a->now))
		return false;
	give_turn(at, t->gang, lent);
	scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | at, FAIR_SLICE, a->flags | ENQ_PREEMPT);
	drive(at);
	return true;
}

/*
 * Return true if @t is brief and bound, and is owed the CPU where it waits. In the queue @t would
 * be the last one: members of gangs are further behind the clock, since their turns alternate
 * whatever they are owed.
 */
static bool is_owed_here(const struct fair_task *t, const struct arrival *a)
{
	return t->bound && is_brief(t, a->now) && fair_after(v_of(t), a->clock) <= 0 &&
	       cpu_of(a->cpu)->start && !has_real_time(a->cpu) &&
	       !scx_bpf_dsq_nr_queued(DSQ_LOCAL) && may_send(a->cpu, t->gang, a->now);
}

/*
 * Return the request of a task that is queued. A patient task asks for no less than its waker does.
 */
static __always_inline u64 asked_of(const struct fair_task *t)
{
	return t->patient ? most_of(t, t->cache, FAIR_SLICE) : request_of(t, t->cache);
}

#define FARTHEST (1LL << 62) /* more than bound tasks are ahead of a clock, or behind it */

/* Return true if a member of @gang runs on @cpu, or waits for it alone. */
GLOBAL bool has_member(u32 cpu, u32 gang)
{
	bool found = cpu_of(cpu)->gang == gang;
	struct task_struct *p;
	u32 looks = 0;

	if (!gang || found)
		return gang;
	bpf_for_each(scx_dsq, p, cpu_queue(cpu), 0)
	{
		const struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		found = t && t->gang == gang;
		if (!t || found || ++looks >= LOOKS)
			break;
	}
	return found;
}

/*
 * Return the CPU where @p, which is bound and may use more CPUs than one, waits: one that no task
 * is bound to, or the one with the bound tasks that are furthest ahead, by the clock of their
 * cache, but none that a sibling of @p has: the two would never run at once.
 * @p stays on a CPU that no other task is bound to, and where those of others are ahead by a slice
 * at most.
 */
GLOBAL u32 place_bound(struct task_struct *p __arg_trusted, const struct fair_task *t __arg_nonnull,
		       u32 here, u64 now)
{
	s64 most = bound_ahead(here, now) + fair_virtual(FAIR_SLICE, t->w);
	u32 i, best = here;

	if (p->nr_cpus_allowed < 2 || clock_of(BOUND_CLOCK | here)->nr < 2)
		return here;
	if (has_member(here, t->gang))
		most = -FARTHEST;
	bpf_for(i, 0, nr_cpus) {
		bool empty = !clock_of(BOUND_CLOCK | i)->nr;
		s64 ahead = empty ? FARTHEST : bound_ahead(i, now);

		if (ahead <= most || !may_run(p, i) || has_real_time(i) || has_member(i, t->gang))
			continue;
		most = ahead;
		best = i;
	}
	return best;
}

/* Queue @p in the cache that has most room. */
GLOBAL int enqueue_waiting(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
			   const struct arrival *a __arg_nonnull)
{
	u32 at = t->bound ? place_bound(p, t, a->cpu, a->now) : a->cpu;
	u32 cache = t->bound ? cpu_of(at)->cache : home_of(t, a->cache);
	s32 idle;

	if (!t->bound && !t->gang)
		cache = roomiest(t, cache);
	if (cache != t->cache || at != a->cpu) {
		clock_dequeue(t, a->now);
		change_clock(t, at, cache, a->now);
		clock_enqueue(t, a->now);
	}
	t->queue = waiting_queue(t, at, t->cache);
	t->since = a->now;
	scx_bpf_dsq_insert_vtime(p, t->queue, FAIR_SLICE, t->v + fair_virtual(asked_of(t), t->w),
				 a->flags);
	t->patient = 0;
	if (t->bound)
		cpu_of(at)->has = 1;
	else if (t->gang)
		note_queued(t->gang);
	if (a->full)
		return 0;
	/*
	 * a CPU that idles since the last look did not see the task: the kick comes after the
	 * insertion
	 */
	idle = take_idle_cpu(p);
	if (idle >= 0)
		wake(idle);
	return 0;
}

static void enqueue(struct task_struct *p, struct fair_task *t, struct arrival *a)
{
	bool wakes = (a->flags & ENQ_WAKEUP) && !(a->flags & ENQ_REENQ);
	bool tried = t->on_rq || t->patient; /* select_busy() tried */
	u32 at;

	adopt(t);
	catch_loose(t);
	update_mask(p, t, a->cache);
	if (throttle(p, t, a))
		return;
	prepare(p, t, a);
	at = idle_for(p, t, a);
	if (at != NOBODY) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | at, FAIR_SLICE, a->flags | at_once());
		if (strict_gangs && at != a->cpu)
			drive(at);
		return;
	}
	if (wakes && !tried) {
		at = hand_over(p, t, a);
		if (at != NOBODY) {
			scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | at, FAIR_SLICE, a->flags);
			return;
		}
		at = preempt(p, t, a);
		if (at != NOBODY) {
			scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | at, FAIR_SLICE,
					   a->flags | ENQ_PREEMPT);
			if (at != a->cpu)
				drive(at);
			return;
		}
	}
	if (wakes && is_owed_here(t, a))
		scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, a->flags | ENQ_PREEMPT);
	else if (!take_seat(p, t, a))
		enqueue_waiting(p, t, a);
}

static __always_inline void take_in(struct task_struct *p, u64 flags)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	struct arrival a = {.flags = flags, .cpu = cpu, .cache = c->cache};

	/* cpu_release() is running, too, if real time preempts the task */
	if (!t || is_fixed(p, 1 + !!(flags & ENQ_REENQ))) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, flags);
		return;
	}
	a.now = bpf_ktime_get_ns();
	if (t->delayed)
		requeue_delayed(t, a.now);
	follow_group(p, t);
	a.clock = clock_at(a.cache, a.now);
	/*
	 * count the running tasks and the task that just stopped here; there is no other cache to
	 * look in
	 */
	a.full = is_full_with(a.cache, !flags && !c->start);
	enqueue(p, t, &a);
}

SEC("struct_ops/gang_enqueue")
void BPF_PROG(gang_enqueue, struct task_struct *p, u64 flags)
{
	begin_sample(enqueues);
	take_in(p, flags);
	end_sample(enqueue);
}

#endif /* OPS_ENQUEUE_BPF_H */
