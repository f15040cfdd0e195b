/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Virtual time: clocks under their locks. Each cache has a clock, of the tasks that may run
 * anywhere in it; each CPU has a clock of the tasks that are bound there. The verifier allows one
 * lock a map value, so the locks lie in a map beside the clocks. While a CPU holds a lock, it may
 * call no function that the verifier checks by itself.
 */
#ifndef FAIR_CLOCK_BPF_H
#define FAIR_CLOCK_BPF_H

#include "state/lookup.bpf.h"

/* Change clock @id under its lock. The statements in @what name the clock `clock`. */
#define clock_change(id, what...)                                                                  \
	do {                                                                                       \
		u32 __id = (id);                                                                   \
		struct fair_clock *clock = clock_of(__id);                                         \
		struct fair_lock *__lock = bpf_map_lookup_elem(&locks, &__id);                     \
                                                                                                   \
		if (!__lock)                                                                       \
			break;                                                                     \
		bpf_spin_lock(&__lock->lock);                                                      \
		(*(volatile u32 *)&clock->seq)++;                                                  \
		barrier();                                                                         \
		what;                                                                              \
		barrier();                                                                         \
		(*(volatile u32 *)&clock->seq)++;                                                  \
		bpf_spin_unlock(&__lock->lock);                                                    \
	} while (0)

/* Return V of clock @id at @now; other CPUs may change the clock meanwhile. */
GLOBAL u64 clock_at(u32 id, u64 now)
{
	const volatile struct fair_clock *clock = clock_of(id);
	u32 seq = clock->seq;
	u64 v = fair_clock_at(clock, now);

	if (!(seq & 1) && clock->seq == seq)
		return v;
	bpf_repeat(1 << 16)
	{
		seq = clock->seq;
		if (seq & 1)
			continue;
		v = fair_clock_at(clock, now);
		if (clock->seq == seq)
			break;
	}
	return v;
}

/* Return the virtual time of @t by the clock of its cache. */
static u64 v_of(const struct fair_task *t)
{
	return t->clock & BOUND_CLOCK ? t->v + cpu_of(t->clock)->offset : t->v;
}

/* Return the virtual time of @t by the clock of @cache, which may be another cache. */
GLOBAL u64 v_in(const struct fair_task *t __arg_nonnull, u32 cache, u64 now)
{
	u64 v = v_of(t);

	return t->cache == cache ? v : v + clock_at(cache, now) - clock_at(t->cache, now);
}

/* Give @t the virtual time @v, by the clock of its cache. */
GLOBAL int set_v(struct fair_task *t __arg_nonnull, u64 v)
{
	if (t->clock & BOUND_CLOCK)
		v -= cpu_of(t->clock)->offset;
	clock_change(t->clock, {
		if (t->on_rq)
			fair_clock_shift(clock, t->w, t->v, v);
		t->v = v;
	});
	return 0;
}

/* Return how long the task on @c has run since it was last charged. */
static u64 ran_on(const struct fair_cpu *c, u64 now)
{
	u64 start = *(volatile u64 *)&c->start;

	return start ? fair_since(start, now) : 0;
}

/* Return the virtual time of the task on @c. */
static u64 v_now(const struct fair_cpu *c, u64 now)
{
	return c->v + fair_virtual(ran_on(c, now), c->w);
}

#endif /* FAIR_CLOCK_BPF_H */
