/* SPDX-License-Identifier: GPL-2.0 */
/* User space adds CPUs before the scheduler is attached, and sets gangs afterwards. */
#ifndef OPS_CONTROL_BPF_H
#define OPS_CONTROL_BPF_H

#include "gang/lists.bpf.h"

#define LIST_TRIES 4096

/* Add a CPU. The caller adds CPUs core by core, and cache by cache. */
SEC("syscall")
int add_cpu(struct gang_cpu_args *args)
{
	u32 cpu = args->cpu, last = host.caches - 1;
	struct fair_cpu *c = cpu_of(cpu);
	struct fair_cache *d;

	if (cpu >= nr_cpus || cpu >= GANG_MAX_CPUS || !args->threads)
		return -EINVAL;
	if (!host.caches || args->new_cache) {
		if (host.caches >= GANG_MAX_CACHES)
			return -ENOSPC;
		last = host.caches++;
	}
	d = cache_of(last);
	if (d->cpus >= CACHE_CPUS)
		return -ENOSPC;
	c->cache = last;
	c->threads = args->threads;
	c->sibling = cpu;
	if (args->sibling && d->cpus) {
		u32 other = cpu_at(d, d->cpus - 1);

		c->sibling = other;
		if (cpu_of(other)->sibling == other)
			cpu_of(other)->sibling = cpu;
	}
	d->cpu[d->cpus & (CACHE_CPUS - 1)] = cpu;
	d->cpus++;
	host.cpus++;
	return 0;
}

SEC("syscall")
int set_turns(struct gang_turn_args *args)
{
	if (!args->turn_us)
		return -EINVAL;
	turn_ns = args->turn_us * 1000ULL;
	return 0;
}

static void dissolve(u32 gang)
{
	u32 i;

	bpf_for(i, 0, GANG_MAX_CACHES)
		if (gang_of(gang)->caches >> i & 1)
			unlist_gang(i, gang);
	gang_of(gang)->mode = GANG_MODE_OFF;
}

/* Return true if each cache of @caches lists @gang or has room for it. */
static bool have_room(u64 caches, u32 gang)
{
	bool fits = true;
	u32 i;

	caches &= ~gang_of(gang)->caches;
	bpf_for(i, 0, host.caches)
		if (caches >> i & 1)
			fits &= cache_of(i)->gangs < LIST;
	return fits;
}

/* Make @id the gang that @args describe. The caller holds the lists. */
static s32 set_up(u32 id, const struct gang_args *args)
{
	struct fair_gang *g = gang_of(id);
	u32 i;

	if (!have_room(args->caches, id))
		return -ENOSPC;
	dissolve(id);
	g->mode = args->mode;
	g->cache = args->cache;
	g->room = ~0ULL; /* enqueue() of each member narrows it */
	g->wide = (args->caches & (args->caches - 1)) != 0;
	bpf_for(i, 0, host.caches)
		if (args->caches >> i & 1) {
			list_gang(i, id);
			/* members may wait that another cache counts */
			cache_of(i)->strangers = 1;
		}
	return 0;
}

/* Wait for a CPU that moves a gang, and hold the lists; return false if that takes too long. */
static bool get_lists(void)
{
	bool held = false;
	u32 i;

	bpf_for(i, 0, LIST_TRIES)
		if ((held = hold_lists()))
			break;
	return held;
}

SEC("syscall")
int set_gang(struct gang_args *args)
{
	u32 id = args->gang, cache = args->cache;
	bool wanted = args->mode >= GANG_MODE_RELAXED;
	struct fair_gang *g = gang_of(id);
	u8 was;
	s32 err;

	if (!id || id >= GANG_MAX_GANGS || cache >= host.caches ||
	    (wanted && !(args->caches >> cache & 1)))
		return -EINVAL;
	err = wanted ? scx_bpf_create_dsq(gang_queue(id), -1) : 0;
	if (err && err != -EEXIST) /* an earlier gang had this number */
		return err;
	was = g->mode;
	if (wanted && !was && scx_bpf_dsq_nr_queued(gang_queue(id)) > 0)
		return -EBUSY; /* members of the gang that had this number wait there */
	if (wanted) {
		if (!get_lists())
			return -EBUSY;
		err = set_up(id, args);
		release_lists();
		if (err)
			return err;
	} else {
		/* members that wait in the gang's queue are served until they have left it */
		g->mode = GANG_MODE_OFF;
	}
	strict_gangs += (args->mode == GANG_MODE_STRICT) - (was == GANG_MODE_STRICT);
	epoch++;
	return 0;
}

#endif /* OPS_CONTROL_BPF_H */
