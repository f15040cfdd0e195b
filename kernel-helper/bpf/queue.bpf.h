/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks wait in three kinds of queues, each by virtual deadline: of a domain, for tasks that may
 * run anywhere in it; of a CPU, for tasks bound there; of a gang, for its members.
 *
 * A CPU chooses among the heads and the task that ran: who is owed something comes first; then
 * gangs that fit, and then the earliest deadline (EEVDF, but for a head that hides an eligible
 * task).
 */
#ifndef QUEUE_BPF_H
#define QUEUE_BPF_H

#include "strict.bpf.h"

#define GRAIN (MSEC / 2) /* a task is preempted by one whose deadline is so much earlier */
/*
 * A task woken by one that is about to sleep takes no CPU from a task that came there less than
 * this ago. Pairs that wake each other else switch at each message, where one switch would do for
 * many; EEVDF protects a whole slice. Other wakeups are not held up: a CPU that served one would be
 * closed to the next for as long.
 */
#define KEEPS	     (3 * MSEC / 2)
#define STRICT_LOOKS 16		 /* tasks looked at, of which no strict gang lets one to its core */
#define TAKE_LOOKS   64		 /* tasks of one queue looked at for one that was chosen */
#define CALL	     (MSEC / 10) /* from the choice of a gang to its turn, at most */
#define OWED_LONG                                                                                  \
	(60 * MSEC) /* a gang that would be alone waits for room until it is owed so much */

/*
 * True if somebody waits for @cpu alone. Its queue is not looked at as long as nobody did. Only
 * @cpu asks, under its lock, as who queues a task there does: the task is in the queue after that.
 */
static __always_inline bool bound_wait(u32 cpu)
{
	struct fair_cpu *c = cpu_of(cpu);

	if (!*(volatile u32 *)&c->has)
		return false;
	/* before the look: timers, which do not hold the lock, set it after they insert */
	__sync_lock_test_and_set(&c->has, 0);
	if (scx_bpf_dsq_nr_queued(cpu_queue(cpu)) <= 0)
		return false;
	c->has = 1;
	return true;
}

#define NOT_COUNTED 0xffff

/* The first of a queue that may be run, and what makes it so. */
struct choice {
	u64 deadline, queue; /* queue 0: the task that ran before */
	u64 clock, now;
	u32 request; /* ns */
	u32 pid;
	u16 domain, cpu;
	u16 gang;
	u16 free; /* CPUs that no turn has, beside this one; NOT_COUNTED: nobody asked yet */
	u8 looks;
	bool eligible, any, open, brief, fits;
	bool exempt; /* a kernel thread, which strict gangs do not mind */
};

/*
 * A CPU that chose a gang calls it, until its turn is open: another CPU that chooses at this
 * moment, as ticks come to all at once, sees one member less and no turn, and would open one for
 * others.
 */
#define CALL_UNIT 10 /* ns >> this: a word has room for centuries of them, and a gang */

/* The gang that is called in @domain; 0: none. */
static u32 called_in(u32 domain, u64 now)
{
	u64 call = *(volatile u64 *)&domain_of(domain)->call;

	return call / GANGS > now >> CALL_UNIT ? call % GANGS : 0;
}

/* True if no gang is called in @domain beside which there is no room for @gang. */
static bool fits_beside_call(u32 domain, u32 gang, u64 now)
{
	u32 other = called_in(domain, now);

	return !other || other == gang ||
	       gang_of(other)->on + gang_of(gang)->on <= domain_of(domain)->cpus;
}

static bool call_in(u32 domain, u32 gang, u64 now)
{
	u64 *word = &domain_of(domain)->call, was = *(volatile u64 *)word;
	u64 mine = ((now + CALL) >> CALL_UNIT) * GANGS + gang;

	if (!fits_beside_call(domain, gang, now))
		return false;
	return __sync_val_compare_and_swap(word, was, mine) == was ||
	       fits_beside_call(domain, gang, now);
}

static void end_call_in(u32 domain, u32 gang)
{
	u64 *word = &domain_of(domain)->call, was = *(volatile u64 *)word;

	if (was % GANGS == gang)
		__sync_val_compare_and_swap(word, was, 0);
}

/* The turn of @gang is open, or will not be. */
GLOBAL int end_call(u32 domain, u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		end_call_in(domain, gang);
	else
		bpf_for(i, 0, host.domains)
			if (g->domains >> i & 1)
				end_call_in(i, gang);
	return 0;
}

/* Call @gang wherever it may run. False: another one is called, beside which there is no room. */
GLOBAL bool call(u32 domain, u32 gang, u64 now)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		return call_in(domain, gang, now);
	bpf_for(i, 0, host.domains) {
		if (!(g->domains >> i & 1) || call_in(i, gang, now))
			continue;
		end_call(domain, gang);
		return false;
	}
	return true;
}

/* CPUs of the domain, beside @self, that no turn and no gang's brief work has. */
GLOBAL u32 room_beside(u32 self, u64 now)
{
	const struct fair_domain *d = domain_of(cpu_of(self)->domain);
	u32 i, free = 0;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);
		const struct fair_cpu *c = cpu_of(cpu);

		free += cpu != self && !has_turn(c, now) && !(c->start && c->plain && c->gang);
	}
	return free;
}

/* True if as many CPUs as the gang of @t has runnable members are in no turn. */
static __always_inline bool has_room(struct choice *best, const struct fair_task *t)
{
	if (best->free == NOT_COUNTED)
		best->free = room_beside(best->cpu, best->now);
	return gang_of(t->gang)->on <= best->free + 1;
}

/* Compare @t, which has @v by the clock of the domain, with the best so far. */
GLOBAL int weigh_in(struct choice *best __arg_nonnull, const struct fair_task *t __arg_nonnull,
		    u64 v, u64 queue)
{
	u64 clock = best->clock, now = best->now;
	bool called = t->gang && t->gang == called_in(best->domain, now);
	bool open = called || turn_is_open(t->gang, now), brief = is_brief(t, now);
	bool eligible = open || fair_after(v, clock) <= 0, fits;
	u64 deadline = v, request;

	if (best->any && eligible < best->eligible)
		return 0;
	/*
	 * A gang that would be alone gives way to who would not, unless it is owed much. A bound
	 * member is always alone: a turn reaches those in the gang's queue.
	 */
	fits = open || !t->gang || t->bound || brief || has_room(best, t) ||
	       fair_after(v, clock - fair_virtual(OWED_LONG, t->w)) < 0;
	request = request_of(t, best->domain);
	if (!called)
		deadline += fair_virtual(open ? gang_of(t->gang)->until - now : request, t->w);
	if (best->any && eligible == best->eligible &&
	    (fits != best->fits ? !fits : fair_after(deadline, best->deadline) >= 0))
		return 0;
	best->deadline = deadline;
	best->queue = queue;
	best->request = request;
	best->gang = t->gang;
	best->eligible = eligible;
	best->any = true;
	best->open = open;
	best->brief = brief;
	best->fits = fits;
	return 0;
}

/* The same; false: a strict gang has the core, and @p may not run there. */
static bool consider(struct choice *best, const struct task_struct *p, const struct fair_task *t,
		     u64 v, u64 queue)
{
	bool exempt = p->flags & PF_KTHREAD;

	if (strict_gangs && !exempt && !core_can_be_had(best->cpu, t->gang, v, t->w, best->now))
		return false;
	weigh_in(best, t, v, queue);
	if (best->queue == queue) {
		best->exempt = exempt;
		best->pid = p->pid;
	}
	return true;
}

/* Compare the head of @queue; with strict gangs, the first who may have the core. */
GLOBAL int weigh_queue(struct choice *best __arg_nonnull, u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (!t || consider(best, p, t, v_in(t, best->domain, best->now), queue) ||
		    ++best->looks >= STRICT_LOOKS)
			break;
	}
	return 0;
}

/*
 * Bring the chosen task here, which is among the first of its queue, and no other: whoever is first
 * by now, as ticks come to all CPUs at once, may be far ahead.
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

/* The same; of a gang, whoever of its members is first now: the core was taken for each of them. */
static bool take_chosen(const struct choice *c)
{
	if (c->gang && c->queue == gang_queue(c->gang))
		return scx_bpf_dsq_move_to_local(c->queue);
	return take(c);
}

/* Find the next of all that wait and may run on @cpu. */
GLOBAL int choose(u32 cpu, struct choice *best __arg_nonnull)
{
	u32 domain = cpu_of(cpu)->domain, i, queued;
	struct fair_domain *d = domain_of(domain);
	bool empty = true;

	if (bound_wait(cpu))
		weigh_queue(best, cpu_queue(cpu));
	weigh_queue(best, domain_queue(domain));
	if (!members_wait(domain))
		return 0;
	/* before the looks: who comes meanwhile is not missed */
	queued = *(volatile u32 *)&d->queued;
	barrier();
	bpf_for(i, 0, d->gangs) {
		u32 gang = gang_at(d, i);

		if (!(gang_of(gang)->on || d->loose || d->strangers) ||
		    scx_bpf_dsq_nr_queued(gang_queue(gang)) <= 0)
			continue;
		empty = false;
		weigh_queue(best, gang_queue(gang));
	}
	if (empty)
		*(volatile u32 *)&d->emptied = queued;
	return 0;
}

/* A woken task claims the CPU of a task whose deadline is later than its own by a grain. */
struct preemption {
	u64 deadline, now;
	s64 grain;
	s64 turn; /* by how much later the deadline of a turn's member has to be, beside the grain
		   */
	s64 most;
	u32 prefer;
	u32 domain;
	u32 victim;
	bool sync; /* its waker is about to sleep */
};

/*
 * @cpu is the victim if its task's deadline is the latest so far. By itself: the verifier of 6.12
 * follows a loop until its state repeats, which that of this body does not.
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
	if (ahead < want->most || ahead <= 0 || (ahead == want->most && cpu != want->prefer))
		return 0;
	if (!may_run(p, cpu) || is_taken(cpu) || !core_admits(cpu, t->gang, now))
		return 0;
	want->most = ahead;
	want->victim = cpu;
	return 0;
}

/* The CPU that a woken task may take: the one whose task has the latest deadline. */
GLOBAL u32 find_victim_cpu(struct task_struct *p __arg_trusted,
			   const struct fair_task *t __arg_nonnull,
			   struct preemption *want __arg_nonnull)
{
	const struct fair_domain *d = domain_of(want->domain);
	bool waits = !is_brief(t, want->now) && !turn_is_open(t->gang, want->now);
	u32 i;

	want->turn = waits ? fair_virtual(turn_most_in(want->domain), t->w) : 0;
	want->victim = NOBODY;
	bpf_for(i, 0, d->cpus)
		weigh_victim(p, t, want, cpu_at(d, i));
	return want->victim;
}

/* An idle CPU of the domain, of an idle core if there is one; claimed. NOBODY: none. */
GLOBAL u32 idle_in(struct task_struct *p __arg_trusted, u32 gang, u32 domain, u64 now)
{
	const struct fair_domain *d = domain_of(domain);
	u32 i, found = NOBODY, n = d->cpus;

	bpf_for(i, 0, 2 * n) {
		u32 cpu = cpu_at(d, i < n ? i : i - n);
		const struct fair_cpu *c = cpu_of(cpu);
		bool whole = c->threads < 2 || !cpu_of(c->sibling)->start;

		if (c->start || whole != (i < n) || is_taken(cpu) || !may_run(p, cpu) ||
		    !core_admits(cpu, gang, now))
			continue;
		if (!scx_bpf_test_and_clear_cpu_idle(cpu))
			continue; /* another class has it */
		found = cpu;
		break;
	}
	return found;
}

/*
 * A CPU that idles beside waiting tasks is woken. It saw nobody because a task was on its way from
 * one queue to another, and who queued the task saw no idle CPU.
 */
GLOBAL int wake_idle(u32 domain)
{
	const struct fair_domain *d = domain_of(domain);
	u32 i;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);

		if (cpu_of(cpu)->start || is_taken(cpu))
			continue;
		count(rewoken);
		wake(cpu);
		if (!strict_gangs) /* who waits may not be for this CPU */
			break;
	}
	return 0;
}

/* Take a task that waits for other CPUs or in other domains. */
GLOBAL bool steal(u32 cpu)
{
	u32 own = cpu_of(cpu)->domain, i, k;

	if (strict_gangs)
		return false;
	bpf_for(i, 0, nr_cpus)
		if (*(volatile u32 *)&cpu_of(i)->has && scx_bpf_dsq_move_to_local(cpu_queue(i)))
			return true;
	bpf_for(i, 0, host.domains) {
		struct fair_domain *d = domain_of(i);
		u32 first = d->stolen; /* no gang comes first for ever */

		if (i == own || !waits_in(i))
			continue;
		if (scx_bpf_dsq_move_to_local(domain_queue(i)))
			return true;
		bpf_for(k, 0, d->gangs) {
			u32 gang = gang_at(d, (first + k) % d->gangs);

			if (scx_bpf_dsq_nr_queued(gang_queue(gang)) <= 0 ||
			    !scx_bpf_dsq_move_to_local(gang_queue(gang)))
				continue;
			d->stolen = first + k + 1;
			return true;
		}
	}
	return false;
}

#endif /* QUEUE_BPF_H */
