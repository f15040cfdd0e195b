// SPDX-License-Identifier: GPL-2.0
/*
 * Domains: the CPUs that gangs share. Each CPU is a column and has a worker.
 */
#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "domain.h"
#include "registry.h"
#include "slot.h"
#include "worker.h"

static struct gang_dom *domains[GANG_MAX_CACHES];
static const void *owners[GANG_MAX_CACHES];

struct gang_dom *gang_domain_find(u32 index)
{
	lockdep_assert_held(&gang_control);
	return index < GANG_MAX_CACHES ? domains[array_index_nospec(index, GANG_MAX_CACHES)] : NULL;
}

bool gang_domain_owned(u32 index, const void *owner)
{
	lockdep_assert_held(&gang_control);
	return owners[index] == owner;
}

static void free_columns(struct gang_dom *dom)
{
	u32 i;

	for (i = 0; i < dom->columns; i++)
		if (gang_column_of(dom->column[i].cpu) == &dom->column[i])
			gang_column_here(dom->column[i].cpu, NULL);
	synchronize_rcu();
	gang_slot_stop(dom);
	for (i = 0; i < dom->columns; i++)
		gang_worker_stop(&dom->column[i]);
	kvfree(dom);
}

/* Return true if @cpus are online, each named once, and in no domain but @old. */
bool gang_domain_usable(const struct gang_domain *cpus, const struct gang_dom *old)
{
	u32 i, j;

	for (i = 0; i < cpus->columns; i++) {
		struct gang_column *column;

		if (cpus->cpu[i] >= nr_cpu_ids || !cpu_online(cpus->cpu[i]))
			return false;
		column = gang_column_of(cpus->cpu[i]);
		if (column && column->dom != old)
			return false;
		for (j = 0; j < i; j++)
			if (cpus->cpu[i] == cpus->cpu[j])
				return false;
	}
	return true;
}

bool gang_domain_same(const struct gang_dom *dom, const struct gang_domain *cpus)
{
	u32 i;

	if (dom->columns != cpus->columns)
		return false;
	for (i = 0; i < dom->columns; i++)
		if (dom->column[i].cpu != cpus->cpu[i])
			return false;
	return true;
}

void gang_domain_tune(struct gang_dom *dom, u32 slot_us)
{
	u64 length = clamp_t(u64, 1000ULL * slot_us, GANG_SLOT_MIN_NS, GANG_SLOT_MAX_NS);
	unsigned long flags;

	raw_spin_lock_irqsave(&dom->lock, flags);
	dom->slot.length = length;
	raw_spin_unlock_irqrestore(&dom->lock, flags);
}

static struct gang_dom *new_domain(u32 index, const struct gang_domain *cpus)
{
	struct gang_dom *dom = kvzalloc(struct_size(dom, column, cpus->columns), GFP_KERNEL);
	u32 i;

	if (!dom)
		return NULL;
	raw_spin_lock_init(&dom->lock);
	dom->index = index;
	dom->columns = cpus->columns;
	gang_domain_tune(dom, cpus->slot_us);
	for (i = 0; i < cpus->columns; i++) {
		raw_spin_lock_init(&dom->column[i].lock);
		dom->column[i].dom = dom;
		dom->column[i].cpu = cpus->cpu[i];
		dom->column[i].index = i;
	}
	gang_slot_start(dom);
	for (i = 0; i < cpus->columns; i++) {
		if (gang_worker_start(&dom->column[i])) {
			free_columns(dom);
			return NULL;
		}
	}
	for (i = 0; i < cpus->columns; i++)
		gang_column_here(cpus->cpu[i], &dom->column[i]);
	return dom;
}

int gang_domain_make(const void *owner, u32 index, const struct gang_domain *cpus)
{
	domains[index] = new_domain(index, cpus);
	if (!domains[index])
		return -ENOMEM;
	owners[index] = owner;
	return 0;
}

/* Free the domain, which has no gang any more. */
void gang_domain_free(u32 index)
{
	free_columns(domains[index]);
	domains[index] = NULL;
	owners[index] = NULL;
}
