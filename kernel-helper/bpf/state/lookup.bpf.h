/* SPDX-License-Identifier: GPL-2.0 */
/* The CPU, cache, gang, group, clock or queue that a number stands for. */
#ifndef STATE_LOOKUP_BPF_H
#define STATE_LOOKUP_BPF_H

#include "state/maps.bpf.h"

/*
 * The verifier needs the masks below. The barriers keep clang from dropping a mask that clang knows
 * to be implied.
 */
static struct fair_cpu *cpu_of(u32 cpu)
{
	barrier_var(cpu);
	return &cpus[cpu & (GANG_MAX_CPUS - 1)];
}

static struct fair_cache *cache_of(u32 cache)
{
	barrier_var(cache);
	return &caches[cache & (GANG_MAX_CACHES - 1)];
}

static struct fair_gang *gang_of(u32 gang)
{
	barrier_var(gang);
	return &gangs[gang & (GANGS - 1)];
}

static struct fair_group *group_of(u32 group)
{
	barrier_var(group);
	return &groups[group & (MAX_GROUPS - 1)];
}

static __always_inline struct fair_clock *clock_of(u32 id)
{
	barrier_var(id);
	return &clocks[id & (MAX_CLOCKS - 1)];
}

/*
 * tasks that are looked at in the queue of a CPU; while strict gangs keep each of them off the
 * core, in all queues
 */
#define LOOKS 16

static u64 cpu_queue(u32 cpu)
{
	return 0x10000 | cpu;
}

static u64 cache_queue(u32 cache)
{
	return 0x20000 | cache;
}

static u64 gang_queue(u32 gang)
{
	return 0x30000 | gang;
}

/* Return the queue in which throttled tasks of @group wait for the next period. */
static u64 throttled_queue(u32 group)
{
	return 0x40000 | group;
}

static u32 cpu_at(const struct fair_cache *d, u32 i)
{
	barrier_var(i);
	return d->cpu[i & (CACHE_CPUS - 1)];
}

static u32 gang_at(const struct fair_cache *d, u32 i)
{
	barrier_var(i);
	return d->list[i & (LIST - 1)];
}

/*
 * Return the cache in which @t waits, if it is about to wait in @cache: only the caches of a gang
 * look at its queue.
 */
static u32 home_of(const struct fair_task *t, u32 cache)
{
	const struct fair_gang *g = gang_of(t->gang);
	bool here = g->wide && (g->caches >> cache & 1);

	return t->gang && !t->bound && !here ? g->cache : cache;
}

/* Return the queue in which @t waits: that of @cpu, of its gang, or of @cache. */
static u64 waiting_queue(const struct fair_task *t, u32 cpu, u32 cache)
{
	return t->bound ? cpu_queue(cpu) : t->gang ? gang_queue(t->gang) : cache_queue(cache);
}

#endif /* STATE_LOOKUP_BPF_H */
