/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Turns: fairness chose a member of a gang. If CPUs can be had for all of its siblings that wait,
 * the siblings are moved there at once, and keep these CPUs until the next edge.
 *
 * A CPU can be had if it idles, or if its task is in no turn and not behind the sibling by more
 * than a gang may borrow. For a small part of the time, the budget, that last limit does not hold
 * for a gang that has paid for its last such turn: otherwise a gang as wide as its cache would
 * never be whole beside a task that is always owed a CPU, and a light gang would take more than it
 * ever pays for. The tasks that give up a CPU are owed the time, and get it back. A brief task that
 * is owed its CPU is always left alone: it ends by itself.
 */
#ifndef GANG_TURN_BPF_H
#define GANG_TURN_BPF_H

#include "gang/core.bpf.h"

/*
 * Claim and return an idle CPU of @cache, on an idle core if there is one; NOBODY: there is none.
 */
GLOBAL u32 idle_in(struct task_struct *p __arg_trusted, u32 gang, u32 cache, u64 now)
{
	const struct fair_cache *d = cache_of(cache);
	u32 i, found = NOBODY, n = d->cpus;

	bpf_for(i, 0, 2 * n) {
		u32 cpu = cpu_at(d, i < n ? i : i - n);
		const struct fair_cpu *c = cpu_of(cpu);
		bool whole = c->threads < 2 || !cpu_of(c->sibling)->start;

		if (c->start || whole != (i < n) || is_taken(cpu) || !may_run(p, cpu) ||
		    !core_admits(cpu, gang, now))
			continue;
		if (!scx_bpf_test_and_clear_cpu_idle(cpu))
			continue; /* another class has the CPU */
		found = cpu;
		break;
	}
	return found;
}

/* Return how far a sibling of weight @w may be ahead of the task that @c runs, and take its CPU. */
static s64 borrow_of(const struct fair_cpu *c, u64 w)
{
	return fair_virtual(c->manner ? TURN_BORROW_OTHER : TURN_BORROW, w);
}

/* A gang wishes seats for its siblings that wait. */
struct wish {
	u64 v;	   /* virtual time of the last of them, by the clock of `cache` */
	u64 clock; /* time of the clock of `cache` */
	u64 w, now;
	u32 gang, self, cache;
	bool force; /* a task may lose its CPU, whatever it is owed */
};

static bool may_take(const struct fair_cpu *c, const struct wish *wish)
{
	u64 there = v_now(c, wish->now);

	return (wish->force || fair_after(there, wish->v) + borrow_of(c, wish->w) > 0) &&
	       !ends_request(c->manner, c->bound, there, c->w, wish->clock);
}

/*
 * Return true if a sibling may have @cpu: the CPU idles, or its task may lose it. This is a
 * function of its own, because the verifier of 6.12 follows a loop until its state repeats, and
 * that of this body does not.
 */
GLOBAL bool is_seat(u32 cpu, const struct wish *wish __arg_nonnull)
{
	const struct fair_cpu *c = cpu_of(cpu);

	if (cpu == wish->self || (c->start && c->gang == wish->gang) || has_turn(c, wish->now) ||
	    is_taken(cpu) || !core_admits(cpu, wish->gang, wish->now))
		return false;
	return !c->start || may_take(c, wish);
}

/*
 * Return the CPU for sibling @p: the one with the task that had most, with @force whatever that
 * task is owed; NOBODY if there is none.
 */
GLOBAL u32 find_seat_in(struct task_struct *p __arg_trusted,
			const struct fair_task *t __arg_nonnull, u32 cache, bool force, u64 now)
{
	const struct fair_cache *d = cache_of(cache);
	struct wish wish = {
		.v = v_in(t, cache, now),
		.clock = clock_at(cache, now),
		.w = t->w,
		.now = now,
		.gang = t->gang,
		.self = NOBODY,
		.cache = cache,
		.force = force,
	};
	u32 i, best = NOBODY;
	u64 most = 0;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);
		const struct fair_cpu *c = cpu_of(cpu);
		u64 v = v_now(c, now);

		if (!c->start || (best != NOBODY && fair_after(v, most) < 0) ||
		    !is_seat(cpu, &wish) || !may_run(p, cpu))
			continue;
		most = v;
		best = cpu;
	}
	return best;
}

/*
 * Return a CPU for a sibling in @cache, one of the caches that its gang spans; NOBODY if there is
 * none. Set *@lent if the CPU is from the budget of @g.
 */
static __always_inline u32 find_seat(struct task_struct *p, const struct fair_task *t, u32 cache,
				     const struct fair_gang *g, bool *lent, u64 now)
{
	u32 cpu = find_seat_in(p, t, cache, false, now);

	*lent = false;
	if (cpu == NOBODY && turn_is_lent(g)) {
		cpu = find_seat_in(p, t, cache, true, now);
		*lent = cpu != NOBODY;
	}
	return cpu;
}

/* Move the waiting siblings to CPUs of @cache. */
GLOBAL int pull(u32 gang, u32 cache, u64 now)
{
	struct fair_gang *g = gang_of(gang);
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, gang_queue(gang), 0)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
		/* another CPU may have opened the turn anew */
		s64 left = fair_after(g->until, now);
		u32 cpu;
		bool lent = false, moves;

		if (!t)
			continue;
		cpu = idle_in(p, gang, cache, now);
		if (cpu == NOBODY)
			cpu = find_seat(p, t, cache, g, &lent, now);
		if (cpu == NOBODY)
			break; /* the next sibling has more virtual time */
		if (!may_send(cpu, gang, now)) {
			if (!cpu_of(cpu)->start)
				wake(cpu);
			continue;
		}
		give_turn(cpu, gang, lent);
		scx_bpf_dsq_move_set_slice(&___it, left > (s64)FAIR_LEAST ? left : FAIR_LEAST);
		moves = (u32)scx_bpf_task_cpu(p) != cpu;
		if (scx_bpf_dsq_move(&___it, p, DSQ_LOCAL_ON | cpu, ENQ_PREEMPT)) {
			count(seats);
			if (moves) /* otherwise the kick would be for the sibling */
				drive(cpu);
		} else {
			unsend(cpu);
			if (!cpu_of(cpu)->start)
				wake(cpu); /* this CPU was claimed for a sibling that is gone */
		}
	}
	return 0;
}

#define STAYS 1 /* a value of `displaced` that is no virtual time: no member leaves the CPU */

/* Return how many CPUs of @cache the waiting siblings could have, counted for the last of them. */
GLOBAL u32 seats_in(u32 cache, const struct wish *wish __arg_nonnull)
{
	const struct fair_cache *d = cache_of(cache);
	struct wish here = *wish;
	u32 i, seats = 0;

	here.clock = clock_at(cache, wish->now);
	if (cache != wish->cache)
		here.v += here.clock - clock_at(wish->cache, wish->now);
	bpf_for(i, 0, d->cpus)
		seats += is_seat(cpu_at(d, i), &here);
	return seats;
}

/*
 * Return the number of members of @gang that run in @cache, but not on @self. Members have a turn
 * from now on if @open.
 */
GLOBAL u32 seated_in(u32 cache, u32 gang, u32 self, bool open)
{
	const struct fair_cache *d = cache_of(cache);
	const struct fair_gang *g = gang_of(gang);
	u32 i, seated = 0;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);
		struct fair_cpu *c = cpu_of(cpu);

		if (!c->start || c->gang != gang)
			continue;
		seated += cpu != self;
		if (!open)
			continue;
		c->turn = gang;
		c->until = g->until;
		c->ask = g->until - c->start;
	}
	return seated;
}

/* Return the number of seats in all caches that the gang of @wish spans. */
static __always_inline u32 seats(const struct wish *wish)
{
	const struct fair_gang *g = gang_of(wish->gang);
	u32 i, found = 0;

	if (!g->wide)
		return seats_in(wish->cache, wish);
	bpf_for(i, 0, host.caches)
		if (g->caches >> i & 1)
			found += seats_in(i, wish);
	return found;
}

static __always_inline u32 seated(u32 gang, u32 self, bool open)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i, found = 0;

	if (!g->wide)
		return seated_in(cpu_of(self)->cache, gang, self, open);
	bpf_for(i, 0, host.caches)
		if (g->caches >> i & 1)
			found += seated_in(i, gang, self, open);
	return found;
}

static __always_inline int pull_all(u32 gang, u32 cache, u64 now)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i;

	if (!g->wide)
		return pull(gang, cache, now);
	bpf_for(i, 0, host.caches)
		if (g->caches >> i & 1)
			pull(gang, i, now);
	return 0;
}

/*
 * Store the last waiting sibling in @wish. Its claim is the least: what it may take, each of its
 * siblings may take. @displaced: virtual time of the member that leaves @self.
 */
GLOBAL int look_at_last(struct wish *wish __arg_nonnull, u64 displaced)
{
	struct task_struct *p;

	wish->v = ~0ULL;
	wish->w = FAIR_ONE;
	bpf_for_each(scx_dsq, p, gang_queue(wish->gang), ITER_REV)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (!t)
			continue;
		wish->v = v_in(t, wish->cache, wish->now);
		wish->w = t->w;
		break;
	}
	if (displaced > STAYS && (wish->v == ~0ULL || fair_after(displaced, wish->v) > 0))
		wish->v = displaced;
	return 0;
}

/*
 * Open a turn for the strict gang @gang: fairness chose a member on @cpu, and the gang has the
 * core. Take whole cores for as many siblings as possible, until the next edge; a turn of fewer
 * siblings is a turn. @stays: the member is on CPU already.
 */
GLOBAL int open_strict(u32 cpu, u32 gang, bool stays, u64 clock, u64 now)
{
	struct fair_cpu *self = cpu_of(cpu);
	struct fair_gang *g = gang_of(gang);
	struct wish wish = {.now = now, .gang = gang, .self = cpu, .cache = self->cache};
	u64 was = *(volatile u64 *)&g->until;
	u64 until = now + turn_length(now, turn_most_in(self->cache));
	u32 have, i, missing, cores;
	bool opens;

	if (is_owed_on_core(cpu, clock)) {
		self->turn = 0;
		return 0;
	}
	have = 1 + seated(gang, cpu, false);
	missing = g->nr_runnable > have ? g->nr_runnable - have : 0;
	/* another CPU may open the turn at this moment: it counts the members that come */
	opens = fair_after(was, now) <= 0 &&
		__sync_val_compare_and_swap(&g->until, was, until) == was;
	if (opens) {
		g->opened = now;
		g->awaited = missing + !stays;
	}
	hold_core(cpu, gang, g->until);
	give_turn(cpu, gang, false);
	if (!opens)
		return 0;
	if (!g->awaited)
		note_whole(gang, 0);
	seated(gang, cpu, true);
	note_turn(gang, g->awaited, g->until - now, now);
	look_at_last(&wish, 0);
	cores = cache_of(self->cache)->cpus;
	missing = missing > 1 && self->threads > 1 ? missing - 1 : missing;
	bpf_for(i, 0, cores) {
		u32 seats;

		if (!missing)
			break;
		seats = seat_core(self->cache, gang, wish.v, wish.w, now);
		if (!seats)
			break;
		missing = missing > seats ? missing - seats : 0;
	}
	return 0;
}

/*
 * Return the number of siblings that wait. The queue lacks the one that has just left a CPU, with
 * @displaced.
 */
static u32 waiting_of(u32 gang, u64 displaced)
{
	s32 queued = scx_bpf_dsq_nr_queued(gang_queue(gang));

	return (queued > 0 ? queued : 0) + (displaced > STAYS);
}

/*
 * Return true if CPUs of @d may be lent to a turn now. If several CPUs ask at once, one may lend.
 */
static __always_inline bool lend(struct fair_cache *d, u64 now)
{
	u64 last = *(volatile u64 *)&d->lent_at;

	return turn_may_be_lent(last, now) &&
	       __sync_val_compare_and_swap(&d->lent_at, last, now) == last;
}

/*
 * Open a turn for @gang, of which fairness chose a member on @cpu for @length ns, if all siblings
 * that wait find a CPU, too; otherwise the member runs in no turn.
 */
GLOBAL int open_turn(u32 cpu, u32 gang, u64 displaced, u64 length, u64 now)
{
	bool stays = displaced == STAYS; /* the member that was chosen is on CPU already */
	struct fair_cpu *self = cpu_of(cpu);
	struct fair_cache *d = cache_of(self->cache);
	struct fair_gang *g = gang_of(gang);
	u64 most = turn_most_in(self->cache);
	struct wish wish = {.now = now, .gang = gang, .self = cpu, .cache = self->cache};
	u64 was = *(volatile u64 *)&g->until;
	u32 have = 1, missing, waiting, found = 0, on = g->nr_runnable;
	bool lent = false;

	self->turn = 0;
	self->lent = 0;
	if (on < 2)
		return 0;
	if (fair_after(was, now) > 0)
		goto opened;
	if (length >= most)
		length = turn_length(now, most);
	have += seated(gang, cpu, false);
	missing = on > have ? on - have :
			      0; /* the member that ran here is one, if a sibling takes over */
	/*
	 * seats are for queued siblings: ticks come to all CPUs at once, and another CPU took the
	 * other siblings, which are on their way to it. Those of a bound member may wait for CPUs
	 * of their own, of which as many have to be in no turn.
	 */
	waiting = waiting_of(gang, displaced);
	if (waiting > missing || self->bound)
		waiting = missing;
	if (waiting) {
		look_at_last(&wish, displaced);
		found = seats(&wish);
	}
	if (found < waiting) {
		wish.force = true;
		if (self->paid && seats(&wish) >= waiting && lend(d, now)) {
			length = TURN_LENT;
			lent = true;
		} else {
			return 0;
		}
	}
	if (__sync_val_compare_and_swap(&g->until, was, now + length) != was)
		goto opened;
	if (lent)
		g->lent = now + length;
	g->opened = now;
	g->awaited = missing + !stays;
	if (!g->awaited)
		note_whole(gang, 0);
	give_turn(cpu, gang, false);
	seated(gang, cpu, true);
	note_turn(gang, g->awaited, length, now);
	if (waiting)
		pull_all(gang, self->cache, now);
	return 0;
opened: /* another CPU opened the turn at this moment */
	give_turn(cpu, gang, false);
	return 0;
}

#endif /* GANG_TURN_BPF_H */
