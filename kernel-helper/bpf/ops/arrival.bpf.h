/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task becomes runnable: what select_cpu() and enqueue() do alike. The task is counted, and takes
 * its waker's CPU, or that of a task with a later deadline.
 */
#ifndef OPS_ARRIVAL_BPF_H
#define OPS_ARRIVAL_BPF_H

#include "fair/run.bpf.h"
#include "gang/affinity.bpf.h"
#include "pick/cpu.bpf.h"

/* A task that becomes runnable, as far as it is known. */
struct arrival {
	u64 flags, now, clock, deadline;
	u32 cpu, cache;
	bool turn; /* the task's gang has a turn */
	bool full; /* no CPU is idle that the task could have */
	bool sync; /* the waker says that it will sleep */
};

/*
 * Enqueue @t in its clock and groups. If its weight, cache or clock changed while it was counted,
 * dequeue it first.
 */
static void ensure_enqueued(struct task_struct *p, struct fair_task *t, struct arrival *a)
{
	if (t->on_rq && (t->own != weight_of(p) || t->cache != a->cache ||
			 t->clock != (t->bound ? BOUND_CLOCK | a->cpu : a->cache)))
		dequeue_task(t, a->now);
	if (!t->on_rq) {
		enqueue_task(p, t, a->cpu, a->now);
		clock_enqueue(t, a->now);
	}
}

/* Enqueue @t, and compute its deadline. */
GLOBAL int prepare(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		   struct arrival *a __arg_nonnull)
{
	ensure_enqueued(p, t, a);
	a->turn = turn_is_open(t->gang, a->now);
	a->deadline = deadline_of(t, a->cache, v_of(t), a->now);
	return 0;
}

/*
 * Return the waker's CPU if the waker hands it over to @t; NOBODY if it does not. A thread that
 * wakes a sibling and then sleeps hands over: the sibling goes on with its account, on its CPU. A
 * thread that does so with a thread of another process, and says so, as at a pipe, passes its CPU
 * on, and each thread has its own account.
 */
GLOBAL u32 hand_over(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		     struct arrival *a __arg_nonnull)
{
	u32 here = bpf_get_smp_processor_id();
	struct task_struct *waker = bpf_get_current_task_btf();
	struct fair_task *o;
	bool kin = waker && waker->tgid == p->tgid;
	u64 v;

	if (!waker || !(kin || (a->sync && !t->gang)) || cpu_of(here)->pid != (u32)waker->pid)
		return NOBODY;
	o = bpf_task_storage_get(&tasks, waker, 0, 0);
	if (!o || o == t || o->cache != t->cache)
		return NOBODY;
	o->woke = a->now;
	o->woke_kin = kin;
	if ((kin ? o->hands : o->passes) < HANDS_OFTEN)
		return NOBODY;
	if (kin) {
		v = v_now(cpu_of(here), a->now);
		if (fair_after(v, v_of(t)) > 0)
			set_v(t, v);
	}
	a->deadline = deadline_of(t, a->cache, v_of(t), a->now);
	if (!may_run(p, here) || is_taken(here) ||
	    !(a->turn || fair_after(v_of(t), a->clock + fair_virtual(FAIR_SLICE, t->w)) <= 0) ||
	    !may_send(here, t->gang, a->now))
		return NOBODY;
	count(hands);
	return here;
}

/* Return the CPU that a woken task takes if it is owed one; NOBODY if there is none. */
GLOBAL u32 preempt(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		   const struct arrival *a __arg_nonnull)
{
	struct preemption want = {
		.deadline = a->deadline,
		.now = a->now,
		.grain = fair_virtual(GRAIN, t->w),
		.prefer = a->cpu,
		.cache = a->cache,
		.sync = a->sync,
	};
	u32 at;

	if (!a->turn && fair_after(v_of(t), a->clock) > 0)
		return NOBODY;
	at = find_victim_cpu(p, t, &want);
	if (at == NOBODY || !may_send(at, t->gang, a->now))
		return NOBODY;
	count(preempts);
	return at;
}

#endif /* OPS_ARRIVAL_BPF_H */
