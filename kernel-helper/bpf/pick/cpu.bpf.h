/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The CPU of a woken task, taken from a task that has a later deadline; and CPUs that idle beside
 * waiting tasks.
 */
#ifndef PICK_CPU_BPF_H
#define PICK_CPU_BPF_H

#include "gang/core.bpf.h"

#define GRAIN (MSEC / 2) /* a task preempts another one if its deadline is so much earlier */

/*
 * A task that is woken by a task about to sleep takes no CPU from a task that came there less than
 * this ago. Otherwise pairs of tasks that wake each other switch at each message, where one switch
 * would do for many; EEVDF protects a whole slice. Other wakeups are not held up: a CPU that served
 * one wakeup would be closed to the next for as long.
 */
#define KEEPS (3 * MSEC / 2)

/*
 * A brief task that is owed time takes a CPU from work that goes on, whatever that is owed: more
 * than its share no task is owed. Work that lost a CPU for a turn, and cannot use more than one,
 * would keep its old lag for long, and brief tasks would wait for as long.
 */
#define WORKS_ON (1LL << 60) /* more than deadlines are apart */

/* A woken task claims the CPU of a task that has a deadline later than its own by a grain. */
struct preemption {
	u64 deadline, now;
	s64 grain;
	/* beside the grain, how much later the deadline of a member in its turn has to be */
	s64 turn;
	s64 most;
	u32 prefer;
	u32 cache;
	u32 victim;
	bool brief;
	bool sync; /* the waker is about to sleep */
};

/*
 * Make @cpu the victim if its task has the latest deadline so far. This is a function of its own,
 * because the verifier of 6.12 follows a loop until its state repeats, and that of this body does
 * not.
 */
GLOBAL int weigh_victim(struct task_struct *p __arg_trusted,
			const struct fair_task *t __arg_nonnull,
			struct preemption *want __arg_nonnull, u32 cpu)
{
	const struct fair_cpu *c = cpu_of(cpu);
	u64 now = want->now;
	s64 ahead;

	if (!c->start || (t->gang && c->gang == t->gang))
		return 0;
	if (want->sync && !t->bound && c->w * 8 > t->w && fair_since(c->came, now) < KEEPS)
		return 0;
	ahead = fair_after(deadline_now(c, now), want->deadline) - want->grain;
	if (want->turn && turn_is_open(c->gang, now))
		ahead -= want->turn;
	if (want->brief && c->manner != MANNER_BRIEF)
		ahead += WORKS_ON;
	if (ahead < want->most || ahead <= 0 || (ahead == want->most && cpu != want->prefer))
		return 0;
	if (!may_run(p, cpu) || is_taken(cpu) || !core_admits(cpu, t->gang, now))
		return 0;
	want->most = ahead;
	want->victim = cpu;
	return 0;
}

/*
 * Return the CPU that a woken task may take, from the task with the latest deadline; NOBODY if
 * there is none.
 */
GLOBAL u32 find_victim_cpu(struct task_struct *p __arg_trusted,
			   const struct fair_task *t __arg_nonnull,
			   struct preemption *want __arg_nonnull)
{
	const struct fair_cache *d = cache_of(want->cache);
	bool waits;
	u32 i;

	want->brief = is_brief(t, want->now);
	waits = !want->brief && !turn_is_open(t->gang, want->now);

	want->turn = waits ? fair_virtual(turn_most_in(want->cache), t->w) : 0;
	want->victim = NOBODY;
	bpf_for(i, 0, d->cpus)
		weigh_victim(p, t, want, cpu_at(d, i));
	return want->victim;
}

/*
 * Wake a CPU that idles beside waiting tasks. The CPU found no task because the task was on its way
 * from one queue to another, and the CPU that queued the task found no idle CPU.
 */
GLOBAL int wake_idle(u32 cache)
{
	const struct fair_cache *d = cache_of(cache);
	u32 i;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);

		if (cpu_of(cpu)->start || is_taken(cpu))
			continue;
		count(rewoken);
		wake(cpu);
		if (!strict_gangs) /* the waiting task may not be for this CPU */
			break;
	}
	return 0;
}

#endif /* PICK_CPU_BPF_H */
