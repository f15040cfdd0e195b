// SPDX-License-Identifier: GPL-2.0
/*
 * The share of a CPU that the fair class would give. The weights of tasks and groups are the
 * kernel's own (nice, cpu.weight): the module reads them and never keeps them.
 */
#include <linux/rcupdate.h>

#include "compat.h"
#include "share.h"

/*
 * Return the share of its CPU that @task has while all tasks that wait there keep waiting, in
 * GANG_SHARE_ONE; 0 if it is asleep, or not of the fair class. At each level of groups the share is
 * the task's weight, or its group's, divided by the weight of all. The weights may change
 * meanwhile: the next reading replaces a share that is wrong.
 */
u32 gang_fair_share(struct task_struct *task)
{
	const struct sched_entity *entity;
	u64 share = GANG_SHARE_ONE;

	if (task->policy == SCHED_FIFO || task->policy == SCHED_RR)
		return 0;
	rcu_read_lock();
	for (entity = &task->se; entity; entity = entity->parent) {
		unsigned long all = gang_queue_weight(entity);
		unsigned long own = READ_ONCE(entity->load.weight);

		if (!READ_ONCE(entity->on_rq))
			share = 0;
		else if (all > own)
			share = div64_ul(share * own, all);
	}
	rcu_read_unlock();
	return share;
}

/* Return the share of its CPU that the fair class gives to all members of @column together. */
static u32 share_of_members(const struct gang_column *column)
{
	const struct gang_dom *dom = column->dom;
	u32 share = 0, i;

	for (i = 0; i < dom->slot.gangs; i++) {
		const struct gang_thread *thread =
			gang_member(dom, dom->slot.list[i], column->index);

		if (thread && task_cpu(thread->task) == column->cpu)
			share += gang_fair_share(thread->task);
	}
	return min(share, GANG_SHARE_ONE);
}

/*
 * Return true if ordinary tasks run or wait on the CPU of @column. The caller holds the lock of the
 * domain.
 */
bool gang_others_there(const struct gang_column *column)
{
	/* the worker is in no group, so its queue is that of the CPU */
	return gang_queue_weight(&column->worker->se) &&
	       share_of_members(column) < GANG_SHARE_ONE - GANG_SHARE_ONE / 1024;
}

/* Return true if a member of @column is in a group other than the root. */
static bool grouped(const struct gang_column *column)
{
	const struct gang_dom *dom = column->dom;
	u32 i;

	for (i = 0; i < dom->slot.gangs; i++) {
		const struct gang_thread *thread =
			gang_member(dom, dom->slot.list[i], column->index);

		if (thread && thread->task->se.parent)
			return true;
	}
	return false;
}

/*
 * Set the weight of the ordinary tasks of @column relative to all members that wait with them. No
 * member is raised, and the caller runs on that CPU, above them. If @settled, the weights of groups
 * are right. Otherwise they may be too large, and the reading is a lower bound of what ordinary
 * tasks weigh. Kernel threads that are bound to the CPU do not count: while such a thread waits,
 * the last reading stays.
 */
void gang_share_set(struct gang_column *column, bool settled)
{
	struct gang_dom *dom = column->dom;
	unsigned long flags;
	u32 members;

	raw_spin_lock_irqsave(&dom->lock, flags);
	members = share_of_members(column);
	dom->slot.others[column->index].level = grouped(column);
	if (members && !READ_ONCE(column->bound_nr))
		gang_set_odds(&dom->slot, column->index, GANG_SHARE_ONE - members, members,
			      grouped(column) && !settled);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
}
