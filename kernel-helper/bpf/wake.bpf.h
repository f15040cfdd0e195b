/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task becomes runnable: it is counted, and sent to an idle CPU, to its waker's, to one that it
 * takes from a task whose deadline is later, or to a queue.
 */
#ifndef WAKE_BPF_H
#define WAKE_BPF_H

#include "yield.bpf.h"

/* A task that becomes runnable, as far as it is known. */
struct arrival {
	u64 flags, now, clock, deadline;
	u32 cpu, domain;
	bool turn; /* its gang has a turn */
	bool full; /* no CPU is idle that the task could have */
	bool sync; /* its waker says that it will sleep */
};

/* A member of a group that used its cpu.max up waits in the group's own queue. */
static bool throttle(struct task_struct *p, struct fair_task *t, const struct arrival *a)
{
	u32 group = throttled_by(t);

	note_throttled(t, a->now);
	t->throttled = group != 0;
	if (!group)
		return false;
	dequeue_task(t, a->now);
	note_sleep(t, a->now);
	t->since = a->now;
	scx_bpf_dsq_insert_vtime(p, throttled_queue(group), FAIR_SLICE, t->v, a->flags);
	return true;
}

/* It is counted; what changed since it was last is seen to. */
static void ensure_enqueued(struct task_struct *p, struct fair_task *t, struct arrival *a)
{
	if (t->on && (t->own != weight_of(p) || t->domain != a->domain ||
		      t->clock != (t->bound ? BOUND_CLOCK | a->cpu : a->domain)))
		dequeue_task(t, a->now);
	if (!t->on) {
		enqueue_task(p, t, a->cpu, a->now);
		clock_enqueue(t, a->now);
	}
}

/* An idle CPU for a task for which the kernel did not look for one; NOBODY: none. */
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
 * A thread that wakes a sibling and then sleeps hands over: the sibling goes on with its account,
 * on its CPU. One that does so with a thread of another process, and says so, as at a pipe, passes
 * its CPU on, and each has its own account. NOBODY: it does not.
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
	if (!o || o == t || o->domain != t->domain)
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
	a->deadline = deadline_of(t, a->domain, v_of(t), a->now);
	if (!may_run(p, here) || is_taken(here) ||
	    !(a->turn || fair_after(v_of(t), a->clock + fair_virtual(FAIR_SLICE, t->w)) <= 0) ||
	    !may_send(here, t->gang, a->now))
		return NOBODY;
	count(hands);
	return here;
}

/* A sibling took over its CPU: its turn goes on elsewhere, if there is a seat. */
GLOBAL bool take_seat(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		      const struct arrival *a __arg_nonnull)
{
	bool lent = false;
	u32 at;

	if (!a->turn || (a->flags & (ENQ_WAKEUP | ENQ_REENQ)))
		return false;
	at = find_seat(p, t, a->domain, gang_of(t->gang), &lent, a->now);
	if (at == NOBODY || at == a->cpu || !may_send(at, t->gang, a->now))
		return false;
	give_turn(at, t->gang, lent);
	scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | at, FAIR_SLICE, a->flags | ENQ_PREEMPT);
	drive(at);
	return true;
}

/* The CPU that a woken task takes, being owed one; NOBODY: none. */
GLOBAL u32 preempt(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		   const struct arrival *a __arg_nonnull)
{
	struct preemption want = {
		.deadline = a->deadline,
		.now = a->now,
		.grain = fair_virtual(GRAIN, t->w),
		.prefer = a->cpu,
		.domain = a->domain,
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

/*
 * True if a brief task that is bound is owed the CPU where it waits. It would be the last one
 * there: members of gangs, whose turns alternate whatever they are owed, are further behind the
 * clock.
 */
static bool is_owed_here(const struct fair_task *t, const struct arrival *a)
{
	return t->bound && is_brief(t, a->now) && fair_after(v_of(t), a->clock) <= 0 &&
	       cpu_of(a->cpu)->start && !has_real_time(a->cpu) &&
	       !scx_bpf_dsq_nr_queued(DSQ_LOCAL) && may_send(a->cpu, t->gang, a->now);
}

/* The request of a task that is queued: a patient one asks for no less than its waker does. */
static __always_inline u64 asked_of(const struct fair_task *t)
{
	return t->patient ? most_of(t, t->domain, FAIR_SLICE) : request_of(t, t->domain);
}

/* Wait, in the domain where there is most room. */
GLOBAL int enqueue_waiting(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
			   const struct arrival *a __arg_nonnull)
{
	u32 domain = home_of(t, a->domain);
	s32 idle;

	if (!t->bound && !t->gang)
		domain = roomiest(t, domain);
	if (domain != t->domain && !t->bound) {
		clock_dequeue(t, a->now);
		change_clock(t, a->cpu, domain, a->now);
		clock_enqueue(t, a->now);
	}
	t->queue = waiting_queue(t, a->cpu, t->domain);
	t->since = a->now;
	scx_bpf_dsq_insert_vtime(p, t->queue, FAIR_SLICE, t->v + fair_virtual(asked_of(t), t->w),
				 a->flags);
	t->patient = 0;
	if (t->bound)
		cpu_of(a->cpu)->has = 1;
	else if (t->gang)
		note_queued(t->gang);
	if (a->full)
		return 0;
	/* a CPU that idles since we looked did not see it: the kick comes after the insertion */
	idle = take_idle_cpu(p);
	if (idle >= 0)
		wake(idle);
	return 0;
}

/* It is counted, and its deadline known. */
GLOBAL int prepare(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
		   struct arrival *a __arg_nonnull)
{
	ensure_enqueued(p, t, a);
	a->turn = turn_is_open(t->gang, a->now);
	a->deadline = deadline_of(t, a->domain, v_of(t), a->now);
	return 0;
}

/*
 * True if @p has its last CPU, which idles, and whose core does: the kernel's search costs as much
 * as everything else that is done for a task which finds a CPU.
 */
static bool has_last_cpu(struct task_struct *p, u32 cpu, u64 wake_flags)
{
	const struct fair_cpu *c = cpu_of(cpu);

	if (c->start || (!(wake_flags & WAKE_SYNC) && c->threads > 1 && cpu_of(c->sibling)->start))
		return false;
	return allows(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu);
}

/*
 * A woken task that found no idle CPU takes one here, before it is on a run queue: where enqueue()
 * sends a task to another CPU the kernel moves it once more, and kernels before 7.0 forget
 * meanwhile that it preempts (enqueue_task_scx() takes its flags as an int).
 */
static s32 select_busy(struct task_struct *p, struct fair_task *t, s32 cpu, u64 wake_flags)
{
	struct arrival a = {
		.cpu = cpu,
		.domain = cpu_of(cpu)->domain,
		.sync = wake_flags & WAKE_SYNC,
	};
	u64 flags = 0;
	u32 at;

	update_mask(p, t, a.domain);
	if (t->bound || t->adopts)
		return cpu;
	a.now = bpf_ktime_get_ns();
	if (t->delayed)
		requeue_delayed(t, a.now);
	a.clock = clock_at(a.domain, a.now);
	prepare(p, t, &a);
	at = hand_over(p, t, &a);
	if (at == NOBODY) {
		at = preempt(p, t, &a);
		flags = ENQ_PREEMPT;
	}
	if (at == NOBODY)
		return cpu;
	scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, flags);
	return at;
}

static void enqueue(struct task_struct *p, struct fair_task *t, struct arrival *a)
{
	bool wakes = (a->flags & ENQ_WAKEUP) && !(a->flags & ENQ_REENQ);
	bool tried = t->on || t->patient; /* by select_busy() */
	u32 at;

	adopt(t);
	catch_loose(t);
	update_mask(p, t, a->domain);
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

#endif /* WAKE_BPF_H */
