/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Strict gangs: while a member runs, no task of another guest or of the host is on its core for
 * longer than a switch takes. Kernel threads are excepted.
 *
 * A gang holds a core while a member runs there. A gang that took a core also holds it, until the
 * time of the core's word is over or no member is left there. A member that is next on a CPU takes
 * the core if it may take both CPUs; the other CPU is interrupted, and the member waits until that
 * CPU has stopped. If a task comes to a CPU without passing dispatch(), the CPU publishes the task
 * first, and looks at the other CPU then: of two CPUs that do so at once at least one sees the
 * other's task, and its own task leaves (docs/decisions/0013).
 */
#ifndef GANG_CORE_BPF_H
#define GANG_CORE_BPF_H

#include "gang/deadline.bpf.h"
#include "state/kick.bpf.h"

#define HOLDER_MASK 1023ULL    /* the gang or party in a word; the rest says until when */
#define SENT	    (MSEC / 2) /* from sending a task to a CPU until it runs there, at most */
#define CLAIM_ANY   0xffff     /* a task of an unknown party comes */

static u64 core_words[GANG_MAX_CPUS]; /* words of cores; the first CPU of a core is the index */
/*
 * A CPU that sends a task to another CPU writes the party of the task here, as core_claim_of();
 * dispatch() of that CPU leaves the word alone.
 */
static u64 sent_words[GANG_MAX_CPUS];

static bool is_strict(u32 gang)
{
	return gang && gang_of(gang)->mode == GANG_MODE_STRICT;
}

static u64 *word_of(u32 cpu)
{
	const struct fair_cpu *c = cpu_of(cpu);
	u32 first = c->threads > 1 && c->sibling < cpu ? c->sibling : cpu;

	barrier_var(first);
	return &core_words[first & (GANG_MAX_CPUS - 1)];
}

static u64 *sent_to(u32 cpu)
{
	barrier_var(cpu);
	return &sent_words[cpu & (GANG_MAX_CPUS - 1)];
}

/*
 * Return what a word names until its time is over: the word of a core, the strict gang that took
 * the core and may have no member there yet; the word of a CPU, the party of the task that was sent
 * there. Return 0 if the word names nothing.
 */
static u32 named_by(const u64 *at, u64 now)
{
	u64 word = *(const volatile u64 *)at;

	return fair_after(word, now) > 0 ? word & HOLDER_MASK : 0;
}

/* Return the other CPU of the core; @cpu itself if there is none. */
static struct fair_cpu *beside(u32 cpu)
{
	const struct fair_cpu *c = cpu_of(cpu);

	return cpu_of(c->threads > 1 ? c->sibling : cpu);
}

/*
 * Return true if a task runs on @other that has to leave before a task of another party than @gang
 * may be beside it.
 */
static bool is_in_the_way(const struct fair_cpu *other, u32 gang)
{
	return other->start && !other->exempt && other->gang != gang;
}

static u16 core_claim_of(u32 gang)
{
	return is_strict(gang) ? gang + 1 : 1;
}

/* Return true if @c itself chose a task beside which no task of @gang may be. */
static bool is_claimed(const struct fair_cpu *c, u32 gang)
{
	u32 claim = *(const volatile u16 *)&c->core_claim;

	return claim && claim != core_claim_of(gang);
}

/* Return true if another CPU sent a task to @cpu beside which no task of @gang may be. */
static bool is_sent_another(u32 cpu, u32 gang, u64 now)
{
	u32 sent = named_by(sent_to(cpu), now);

	return sent && sent != core_claim_of(gang);
}

/* Return true if a task is on its way to the other CPU beside which no task of @gang may be. */
static bool is_outdone(u32 cpu, u32 gang, u64 now)
{
	const struct fair_cpu *other = beside(cpu);

	return other != cpu_of(cpu) &&
	       (is_claimed(other, gang) || is_sent_another(cpu_of(cpu)->sibling, gang, now));
}

/*
 * Return the strict gang that has the core of @cpu, while no task runs on @cpu; 0 if there is none.
 */
GLOBAL u32 core_holder(u32 cpu, u64 now)
{
	const struct fair_cpu *other = beside(cpu);

	if (other != cpu_of(cpu) && other->start && is_strict(other->gang))
		return other->gang;
	return named_by(word_of(cpu), now);
}

/* Return true if a member of @gang, or an ordinary task (@gang: 0), may come to @cpu at once. */
GLOBAL bool core_admits(u32 cpu, u32 gang, u64 now)
{
	const struct fair_cpu *other = beside(cpu);
	u32 holder;

	if (!strict_gangs)
		return true;
	holder = core_holder(cpu, now);
	if ((holder && holder != gang) || is_outdone(cpu, gang, now))
		return false;
	return !is_strict(gang) || other == cpu_of(cpu) || !is_in_the_way(other, gang);
}

/*
 * Return true if the task on @c had more than a task with @v and @w, which may then have the CPU.
 */
static bool had_more(const struct fair_cpu *c, u64 v, u64 w, u64 now)
{
	return fair_after(v_now(c, now), v) > -(s64)fair_virtual(TURN_BORROW_OTHER, w);
}

/*
 * Return true if a task of @gang with @v and @w may come to @cpu at once, or as soon as the other
 * CPU has stopped, because the task there had more. A task in its turn must have had more by a
 * whole turn: a gang opens one turn after the other if its members are alone on their CPUs.
 */
GLOBAL bool core_can_be_had(u32 cpu, u32 gang, u64 v, u64 w, u64 now)
{
	const struct fair_cpu *other = beside(cpu);
	u32 holder;

	if (core_admits(cpu, gang, now))
		return true;
	holder = named_by(word_of(cpu), now);
	if (holder)
		return holder == gang;
	if (!other->start)
		return false;
	if (has_turn(other, now))
		return fair_after(v_now(other, now), v) > (s64)fair_virtual(TURN_MOST, w);
	return had_more(other, v, w, now);
}

static void hold_core(u32 cpu, u32 gang, u64 until)
{
	*(volatile u64 *)word_of(cpu) = (until & ~HOLDER_MASK) | gang;
}

/*
 * Return the virtual time of the first task that is bound to @cpu, by the cache's clock; ~0 if no
 * task waits.
 */
GLOBAL u64 bound_v(u32 cpu)
{
	struct task_struct *p;
	u64 v = ~0ULL;

	bpf_for_each(scx_dsq, p, cpu_queue(cpu), 0)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (t)
			v = v_of(t);
		break;
	}
	return v;
}

/*
 * Return true if a task that is bound to a CPU of @cpu's core waits, and is owed the CPU. No turn
 * of a strict gang begins there: if a turn began at each edge, no CPU of the gang would see that
 * task behind it.
 */
GLOBAL bool is_owed_on_core(u32 cpu, u64 clock)
{
	u32 sibling = cpu_of(cpu)->sibling;
	u64 here = cpu_of(cpu)->has ? bound_v(cpu) : ~0ULL;
	u64 there = cpu_of(sibling)->has ? bound_v(sibling) : ~0ULL;

	return (here != ~0ULL && fair_after(here, clock) < 0) ||
	       (there != ~0ULL && fair_after(there, clock) < 0);
}

/*
 * Take the core of @cpu for a task of @gang that is next there. Return false if the task has to
 * wait for the other CPU, which is told. If both CPUs decide at once, for different parties, both
 * give way, and the first CPU tries again.
 */
GLOBAL bool take_core(u32 cpu, u32 gang, u64 clock, u64 now)
{
	struct fair_cpu *self = cpu_of(cpu);

	self->core_claim = core_claim_of(gang);
	/* full barrier: publish our claim before reading the other CPU's (Dekker) */
	__sync_fetch_and_add(word_of(cpu), 0);
	if (is_outdone(cpu, gang, now) || is_sent_another(cpu, gang, now)) {
		self->core_claim = 0;
		self->outdone = 1;
		if (cpu < self->sibling && !is_sent_another(cpu, gang, now))
			wake(cpu);
		else /* a task that was sent may never come */
			arm_timer(cpu, now + SENT);
		return false;
	}
	if (is_strict(gang) && !is_owed_on_core(cpu, clock))
		hold_core(cpu, gang, turn_is_open(gang, now) ? gang_of(gang)->until : now + MSEC);
	if (core_admits(cpu, gang, now))
		return true;
	/* the claim stays, so that the task on the other CPU may not come back */
	evict(self->sibling);
	return false;
}

/* Withdraw the word for a task that was to be sent to @cpu, and stays where it is. */
GLOBAL int unsend(u32 cpu)
{
	*(volatile u64 *)sent_to(cpu) = 0;
	return 0;
}

/*
 * Publish that a task of @gang is sent to @cpu, and return true; return false, and change nothing,
 * if the task may not be there.
 */
GLOBAL bool may_send(u32 cpu, u32 gang, u64 now)
{
	u64 *sent = sent_to(cpu), was = *(volatile u64 *)sent;
	u64 mine = ((now + SENT) & ~HOLDER_MASK) | core_claim_of(gang);

	if (!strict_gangs)
		return true;
	if (is_sent_another(cpu, gang, now) || __sync_val_compare_and_swap(sent, was, mine) != was)
		return false;
	if (!is_claimed(cpu_of(cpu), gang) && core_admits(cpu, gang, now))
		return true;
	/* write the former word: another task of the same party may be on its way */
	__sync_val_compare_and_swap(sent, mine, was);
	if (is_claimed(cpu_of(cpu), gang))
		wake(cpu); /* that CPU may have given way, too */
	return false;
}

/*
 * Return the flags of a task that is sent to an idle CPU. If that CPU has found another task
 * meanwhile, the sent task would wait in its local queue, and come without passing dispatch().
 */
static u64 at_once(void)
{
	return strict_gangs ? ENQ_PREEMPT : 0;
}

/*
 * Release the core of @cpu, which found no task, unless a strict gang has a member on the core, or
 * a task is on its way there.
 */
GLOBAL int release_core(u32 cpu)
{
	const struct fair_cpu *other = beside(cpu);

	if (!(other->start && is_strict(other->gang)) && !other->core_claim)
		*(volatile u64 *)word_of(cpu) = 0;
	return 0;
}

/*
 * Wake the other CPU of the core if it may be waiting for this: a task of @gang came to @cpu, or
 * left it.
 */
static void tell_core(u32 cpu, u32 gang)
{
	struct fair_cpu *other = beside(cpu);
	bool told = other->outdone;

	other->outdone = 0;
	/* a CPU that has chosen, and lets its task go at this moment, is not idle yet */
	if (other != cpu_of(cpu) && (told || other->core_claim || !other->start) &&
	    waits_in(other->cache) &&
	    (told || other->core_claim || is_strict(gang) || *(volatile u64 *)word_of(cpu)))
		wake(cpu_of(cpu)->sibling);
}

/*
 * Return true if a task of @gang, which came to @cpu, may stay there; otherwise it is to leave at
 * once.
 */
static bool stays_on_core(u32 cpu, u32 gang, u64 now)
{
	const struct fair_cpu *other = beside(cpu);

	cpu_of(cpu)->core_claim = 0;
	/* full barrier: publish the running task before reading the other CPU */
	__sync_lock_test_and_set(sent_to(cpu), 0);
	if (other == cpu_of(cpu))
		return true;
	if (other->start && is_strict(other->gang))
		return other->gang == gang;
	return !is_strict(gang) || !is_in_the_way(other, gang);
}

/*
 * Return true if the other half of @cpu's core idles for the strict gang @gang, which pays for it.
 */
static bool holds_idle(u32 cpu, u32 gang)
{
	const struct fair_cpu *other = beside(cpu);

	return is_strict(gang) && other != cpu_of(cpu) && !other->start;
}

/*
 * Take a whole core of @cache for @gang; its last waiting member has @v and @w. Return the number
 * of CPUs of the core; 0 if no core can be had.
 */
GLOBAL u32 seat_core(u32 cache, u32 gang, u64 v, u64 w, u64 now)
{
	const struct fair_cache *d = cache_of(cache);
	u32 i;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);
		struct fair_cpu *c = cpu_of(cpu), *other = beside(cpu);

		if ((c->threads > 1 && c->sibling < cpu) || core_holder(cpu, now) || c->exempt ||
		    other->exempt || (c->start && is_strict(c->gang)))
			continue;
		if ((c->start && !had_more(c, v, w, now)) ||
		    (other->start && !had_more(other, v, w, now)))
			continue;
		hold_core(cpu, gang, gang_of(gang)->until);
		evict(cpu);
		if (other != c)
			evict(c->sibling);
		return c->threads;
	}
	return 0;
}

#endif /* GANG_CORE_BPF_H */
