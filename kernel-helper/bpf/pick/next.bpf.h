/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The next task of a CPU.
 *
 * Tasks wait in three kinds of queues, each ordered by virtual deadline: that of a cache, for tasks
 * that may run anywhere in it; that of a CPU, for tasks bound there; that of a gang, for its
 * members. A CPU chooses among the heads and the task that ran: a task that is owed time comes
 * first, then a gang that fits, and then the earliest deadline (EEVDF, but for a head that hides an
 * eligible task).
 */
#ifndef PICK_NEXT_BPF_H
#define PICK_NEXT_BPF_H

#include "gang/announce.bpf.h"
#include "gang/core.bpf.h"

#define TAKE_LOOKS 64 /* tasks of one queue that a CPU looks at to find the one that it chose */

/* a gang that would be alone waits for room until it is owed so much */
#define OWED_LONG (60 * MSEC)

/*
 * Return true if a task waits for @cpu alone. The CPU does not look at its queue while no task was
 * inserted there; only @cpu asks.
 */
static __always_inline bool bound_wait(u32 cpu)
{
	struct fair_cpu *c = cpu_of(cpu);

	if (!*(volatile u32 *)&c->has)
		return false;
	/* cleared before the look: a CPU that inserts a task sets it afterwards */
	__sync_lock_test_and_set(&c->has, 0);
	if (scx_bpf_dsq_nr_queued(cpu_queue(cpu)) <= 0)
		return false;
	c->has = 1;
	return true;
}

/*
 * Return true if @t, which runs on @cpu and may run anywhere, is to leave it: a task waits for this
 * CPU alone, and another CPU idles.
 */
static __always_inline bool leaves(u32 cpu, const struct fair_task *t)
{
	u32 cache = cpu_of(cpu)->cache;

	return !t->bound && !strict_gangs && running_in(cache) < cache_of(cache)->cpus &&
	       bound_wait(cpu);
}

#define NOT_COUNTED 0xffff
#define NOT_ASKED   0xfffe

/* The best task so far that may run, and what makes it the best. */
struct choice {
	u64 deadline, queue; /* queue 0: the task that ran before */
	u64 clock, now;
	u32 request; /* ns */
	u32 pid;
	u16 cache, cpu;
	u16 gang;
	/*
	 * CPUs of the cache that no turn has, beside this one; NOT_COUNTED: so far; NOT_ASKED: any
	 * gang has room
	 */
	u16 free;
	u8 looks;
	bool eligible, any, open, brief, fits;
	bool bound;
	bool paid;   /* the task owes no more than a lent turn */
	bool here;   /* a bound task is owed this CPU for a moment */
	bool exempt; /* a kernel thread, which strict gangs do not mind */
};

/*
 * Return the number of CPUs of the cache, beside @self, that are in no turn and run no brief work
 * of a gang.
 */
GLOBAL u32 room_beside(u32 self, u64 now)
{
	const struct fair_cache *d = cache_of(cpu_of(self)->cache);
	u32 i, free = 0;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);
		const struct fair_cpu *c = cpu_of(cpu);

		free += cpu != self && !has_turn(c, now) && !(c->start && c->manner && c->gang);
	}
	return free;
}

/*
 * Return true if as many CPUs of the cache as the gang of @t has runnable members are in no turn. A
 * gang that spans several caches has no room by that, and gives way until it is owed much; when the
 * CPUs of all of them were counted, simulated hosts had the same figures.
 */
static __always_inline bool has_room(struct choice *best, const struct fair_task *t)
{
	if (best->free == NOT_ASKED)
		return true;
	if (best->free == NOT_COUNTED)
		best->free = room_beside(best->cpu, best->now);
	return gang_of(t->gang)->nr_runnable <= best->free + 1;
}

/*
 * Compare @t, which has @v by the clock of the cache, with the best task so far, and keep the
 * better. Return true if that is @t.
 */
GLOBAL bool weigh_in(struct choice *best __arg_nonnull, const struct fair_task *t __arg_nonnull,
		     u64 v, u64 queue)
{
	u64 clock = best->clock, now = best->now;
	bool announced = t->gang && t->gang == announced_in(best->cache, now);
	bool open = announced || turn_is_open(t->gang, now), brief = is_brief(t, now);
	bool eligible = open || fair_after(v, clock) <= 0, fits, here;
	u64 deadline = v, request;

	if (best->any && eligible < best->eligible)
		return false;
	/*
	 * A gang that would be alone gives way to a task that would not, unless the gang is owed
	 * much. A bound member waits for no room: other CPUs are none for it.
	 */
	fits = open || !t->gang || t->bound || brief || has_room(best, t) ||
	       fair_after(v, clock - fair_virtual(OWED_LONG, t->w)) < 0;
	request = request_of(t, best->cache);
	if (!announced)
		deadline += fair_virtual(open ? gang_of(t->gang)->until - now : request, t->w);
	/*
	 * A bound task has no other CPU. By its deadline a brief one would wait for members of
	 * gangs, which are further behind the clock since their turns alternate.
	 */
	here = eligible && brief && t->bound;
	if (best->any && here < best->here)
		return false;
	if (best->any && eligible == best->eligible && here == best->here &&
	    (fits != best->fits ? !fits : fair_after(deadline, best->deadline) >= 0))
		return false;
	best->deadline = deadline;
	best->queue = queue;
	best->request = request;
	best->gang = t->gang;
	best->eligible = eligible;
	best->any = true;
	best->open = open;
	best->brief = brief;
	best->here = here;
	best->paid = fair_after(v, clock + fair_virtual(TURN_LENT, t->w)) <= 0;
	best->fits = fits;
	best->bound = t->bound;
	return true;
}

/* Like weigh_in(), but return false if a strict gang has the core, and @p may not run there. */
static bool consider(struct choice *best, const struct task_struct *p, const struct fair_task *t,
		     u64 v, u64 queue)
{
	bool exempt = p->flags & PF_KTHREAD;

	if (strict_gangs && !exempt && !core_can_be_had(best->cpu, t->gang, v, t->w, best->now))
		return false;
	if (weigh_in(best, t, v, queue)) {
		best->exempt = exempt;
		best->pid = p->pid;
	}
	return true;
}

/*
 * Compare the head of @queue with the best task so far; with strict gangs, the first task that may
 * have the core. In the queue of the CPU itself the head may hide a member in an open turn, which
 * has no other CPU.
 */
GLOBAL int weigh_queue(struct choice *best __arg_nonnull, u64 queue)
{
	bool own = queue == cpu_queue(best->cpu), head = true;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (!t)
			break;
		if (head || t->gang)
			head &= !consider(best, p, t, v_in(t, best->cache, best->now), queue);
		if ((!head && !own) || ++best->looks >= LOOKS)
			break;
	}
	return 0;
}

/*
 * Move the chosen task here, which is among the first of its queue, and no other; return false if
 * it is gone. The task that is first by now may be far ahead, because ticks come to all CPUs at
 * once.
 */
GLOBAL bool take(const struct choice *c __arg_nonnull)
{
	struct task_struct *p;
	u32 looks = 0;

	bpf_for_each(scx_dsq, p, c->queue, 0)
	{
		if (++looks > TAKE_LOOKS)
			break;
		if ((u32)p->pid == c->pid)
			return may_run(p, c->cpu) &&
			       scx_bpf_dsq_move(&___it, p, DSQ_LOCAL_ON | c->cpu, 0);
	}
	return false;
}

/*
 * Like take(), but take the member of a gang that is first now: the core was taken for each of
 * them.
 */
static bool take_chosen(const struct choice *c)
{
	if (c->gang && c->queue == gang_queue(c->gang))
		return scx_bpf_dsq_move_to_local(c->queue);
	return take(c);
}

/* Find the best of all tasks that wait and may run on @cpu. */
GLOBAL int choose(u32 cpu, struct choice *best __arg_nonnull)
{
	u32 cache = cpu_of(cpu)->cache, i, queued;
	struct fair_cache *d = cache_of(cache);
	bool empty = true;

	if (bound_wait(cpu))
		weigh_queue(best, cpu_queue(cpu));
	weigh_queue(best, cache_queue(cache));
	if (!members_wait(cache))
		return 0;
	/* read before the looks, so that a member that comes meanwhile is not missed */
	queued = *(volatile u32 *)&d->queued;
	barrier();
	bpf_for(i, 0, d->gangs) {
		u32 gang = gang_at(d, i);

		if (!(gang_of(gang)->nr_runnable || d->loose || d->strangers) ||
		    scx_bpf_dsq_nr_queued(gang_queue(gang)) <= 0)
			continue;
		empty = false;
		weigh_queue(best, gang_queue(gang));
	}
	if (empty)
		*(volatile u32 *)&d->emptied = queued;
	return 0;
}

#endif /* PICK_NEXT_BPF_H */
