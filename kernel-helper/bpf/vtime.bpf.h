/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clocks under their locks. Each domain has one, of the tasks that may run anywhere in it; each CPU
 * has one of the tasks that are bound there. The verifier allows one lock a map value, so they lie
 * beside the clocks; nothing that it verifies by itself may be called while one is held.
 */
#ifndef VTIME_BPF_H
#define VTIME_BPF_H

#include "state.bpf.h"

static __always_inline struct fair_clock *clock_of(u32 id)
{
	barrier_var(id);
	return &clocks[id & (MAX_CLOCKS - 1)];
}

/* Change clock @id, which is `clock` in @what. */
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

/* V of clock @id at @now, read while others change it. */
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

/* The virtual time of a task by the clock of its domain. */
static u64 v_of(const struct fair_task *t)
{
	return t->clock & BOUND_CLOCK ? t->v + cpu_of(t->clock)->offset : t->v;
}

/* ... of @domain, which may be another. */
GLOBAL u64 v_in(const struct fair_task *t __arg_nonnull, u32 domain, u64 now)
{
	u64 v = v_of(t);

	return t->domain == domain ? v : v + clock_at(domain, now) - clock_at(t->domain, now);
}

/* Give @t the virtual time @v, by the clock of its domain. */
GLOBAL int set_v(struct fair_task *t __arg_nonnull, u64 v)
{
	if (t->clock & BOUND_CLOCK)
		v -= cpu_of(t->clock)->offset;
	clock_change(t->clock, {
		if (t->on)
			fair_clock_shift(clock, t->w, t->v, v);
		t->v = v;
	});
	return 0;
}

/* Runnable tasks of a domain, those that run, and the weights of all. */
static u32 runnable_in(u32 domain)
{
	return *(volatile u32 *)&clock_of(domain)->nr +
	       *(volatile u32 *)&domain_of(domain)->bound_nr;
}

static u32 running_in(u32 domain)
{
	return *(volatile u32 *)&clock_of(domain)->running +
	       *(volatile u32 *)&domain_of(domain)->bound_running;
}

static u64 weight_in(u32 domain)
{
	return *(volatile u64 *)&clock_of(domain)->w + *(volatile u64 *)&domain_of(domain)->bound_w;
}

/* A member of @gang was queued: whoever looks at its queue is told afterwards. */
GLOBAL int note_queued(u32 gang)
{
	const struct fair_gang *g = gang_of(gang);
	u32 i, domain = *(volatile u16 *)&g->domain;

	if (!g->wide) {
		__sync_fetch_and_add(&domain_of(domain)->queued, 1);
		if (*(volatile u16 *)&g->domain == domain)
			return 0;
		domain = g->domain; /* the gang moved meanwhile */
		__sync_fetch_and_add(&domain_of(domain)->queued, 1);
		return 0;
	}
	bpf_for(i, 0, host.domains)
		if (g->domains >> i & 1)
			__sync_fetch_and_add(&domain_of(i)->queued, 1);
	return 0;
}

/* False: no member of a gang waits in @domain. */
static bool members_wait(u32 domain)
{
	const struct fair_domain *d = domain_of(domain);

	return *(volatile u32 *)&d->queued != *(volatile u32 *)&d->emptied;
}

/* True if members of a gang wait that came from another domain, which counts them still. */
GLOBAL bool strangers_wait(u32 domain)
{
	struct fair_domain *d = domain_of(domain);
	u32 i;

	d->strangers = 0; /* a gang that comes meanwhile sets it again */
	bpf_for(i, 0, d->gangs)
		if (scx_bpf_dsq_nr_queued(gang_queue(gang_at(d, i))) > 0)
			d->strangers = 1;
	return d->strangers;
}

/* True if more tasks wait in @domain, for any of its CPUs, than it has CPUs: none is idle. */
static bool is_crowded(u32 domain)
{
	const struct fair_clock *k = clock_of(domain);

	return *(volatile u32 *)&k->nr > *(volatile u32 *)&k->running + domain_of(domain)->cpus;
}

/* True if each CPU of @domain, the only one, runs a task of ours; @more do so beside those counted.
 */
static bool is_full_with(u32 domain, u32 more)
{
	return host.domains == 1 && running_in(domain) + more >= domain_of(domain)->cpus;
}

/* True if somebody waits in @domain. */
static bool waits_in(u32 domain)
{
	const struct fair_domain *d = domain_of(domain);

	return runnable_in(domain) > running_in(domain) || d->loose ||
	       (d->strangers && strangers_wait(domain));
}

#endif /* VTIME_BPF_H */
