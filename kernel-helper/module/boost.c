// SPDX-License-Identifier: GPL-2.0
/*
 * The boost: while a slot belongs to a gang, its members are SCHED_FIFO 1, so that no ordinary task
 * runs before them. A member in the root group is SCHED_IDLE while its column is owed to ordinary
 * tasks. (The RFC's first version gave the fair class a hint instead, the next buddy; that had no
 * measurable effect.)
 *
 * A boost never outlives its slot. One pointer of each column names the boosted member. The pointer
 * changes under the column's mutex, and every path that takes a member out (control.c) calls
 * gang_unboost(). gang.ko restores what it found: class, reset-on-fork, slice and timer slack, and
 * the nice value that the thread has by then. If another program has given a member another class
 * meanwhile, the member keeps that class. Children of a boosted thread start as ordinary tasks
 * (SCHED_RESET_ON_FORK). gang.ko does not touch threads that are real-time anyway.
 */
#include <linux/rtmutex.h>
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "boost.h"
#include "compat.h"
#include "count.h"

/* Return true if @thread has the class that gang.ko gave it, and no other program's. */
static bool kept(const struct gang_thread *thread)
{
	const struct task_struct *task = thread->task;

	if (thread->class == GANG_CLASS_LOWERED)
		return task->policy == SCHED_IDLE;
	return task->policy == SCHED_FIFO && task->rt_priority == GANG_BOOST_PRIORITY;
}

/*
 * Save what @thread is now. Return false if it is not of the fair class: gang.ko then has nothing
 * to do for it.
 */
static bool save(struct gang_thread *thread)
{
	struct task_struct *task = thread->task;

	thread->policy = READ_ONCE(task->policy);
	if (thread->policy != SCHED_NORMAL && thread->policy != SCHED_BATCH &&
	    thread->policy != SCHED_IDLE)
		return false;
	thread->reset_on_fork = task->sched_reset_on_fork;
	thread->slice = gang_own_slice(task);
	thread->slack = task->timer_slack_ns;
	return true;
}

/* Give @task @class. Its children are ordinary tasks all the same, see gang_forked(). */
static int give(struct task_struct *task, enum gang_class class)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	};

	if (class == GANG_CLASS_RAISED) {
		attr.sched_policy = SCHED_FIFO;
		attr.sched_priority = GANG_BOOST_PRIORITY;
	} else {
		attr.sched_policy = SCHED_IDLE;
		attr.sched_nice = task_nice(task);
	}
	return sched_setattr_nocheck(task, &attr);
}

static void give_back(const struct gang_thread *thread)
{
	struct task_struct *task = thread->task;
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = thread->policy,
		.sched_nice = task_nice(task),
		.sched_runtime = thread->slice,
		.sched_flags = thread->reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
	};

	WARN_ON_ONCE(sched_setattr_nocheck(task, &attr));
	if (task->timer_slack_ns != thread->slack)
		task->timer_slack_ns = thread->slack;
}

/*
 * Give @thread @class. Return false if the thread keeps another class, which another program gave
 * it.
 */
bool gang_reclass(struct gang_thread *thread, enum gang_class class)
{
	enum gang_class old = thread->class;

	if (old == class)
		return true;
	if (old == GANG_CLASS_OWN ? !save(thread) : !kept(thread)) {
		WRITE_ONCE(thread->class, GANG_CLASS_OWN);
		return class == GANG_CLASS_OWN;
	}
	WRITE_ONCE(thread->class, class);
	if (class == GANG_CLASS_OWN)
		give_back(thread);
	else if (give(thread->task, class)) {
		WRITE_ONCE(thread->class, old);
		return false;
	}
	return true;
}

static void set_boosted(struct gang_column *column, struct gang_thread *thread)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	column->boosted = thread;
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
}

bool gang_boost(struct gang_column *column, struct gang_thread *thread)
{
	set_boosted(column, thread);
	if (!gang_reclass(thread, GANG_CLASS_RAISED)) {
		set_boosted(column, NULL);
		return false;
	}
	gang_count(GANG_COUNT_BOOSTS);
	return true;
}

/* Restore the class of the member that is boosted on this CPU. */
void gang_boost_end(struct gang_column *column)
{
	if (!column->boosted)
		return;
	gang_reclass(column->boosted, GANG_CLASS_OWN);
	WRITE_ONCE(column->gives_way, false);
	set_boosted(column, NULL);
	gang_count(GANG_COUNT_UNBOOSTS);
}

/*
 * Return the next member of @column that is to change its class, or NULL. The search goes up from
 * gang @local, in the order of gangs; if @ready, it skips members that cannot run.
 */
static struct gang_thread *next_member(struct gang_column *column, u32 *local, bool ready)
{
	struct gang_dom *dom = column->dom;
	struct gang_thread *thread = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&dom->lock, flags);
	for (; !thread && *local < GANG_DOMAIN_GANGS; ++*local)
		if (!ready || (dom->state[*local].ready & gang_bit(column->index)))
			thread = gang_member(dom, *local, column->index);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	return thread;
}

static void set_owed(struct gang_column *column, bool owed)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	column->owed = owed;
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
}

/*
 * Lower the members of @column, which is owed to ordinary tasks: members that have had more than
 * their share run there only if no other task wants to. A member that wakes later has waited, so it
 * keeps its class. A member in a group keeps its class, too: the group competes, whatever the class
 * of its threads.
 */
void gang_lower(struct gang_column *column)
{
	struct gang_thread *thread;
	u32 local = 1;

	set_owed(column, true);
	WRITE_ONCE(column->way_missed, false);
	while ((thread = next_member(column, &local, true)))
		if (!thread->task->se.parent)
			gang_reclass(thread, GANG_CLASS_LOWERED);
}

void gang_lower_end(struct gang_column *column)
{
	struct gang_thread *thread;
	u32 local = 1;

	while ((thread = next_member(column, &local, false)))
		gang_reclass(thread, GANG_CLASS_OWN);
	set_owed(column, false);
}

/*
 * Restore the class of @thread, which leaves its gang. The gang no longer names it, so nothing
 * changes its class after this.
 */
void gang_unboost(struct gang_column *column, struct gang_thread *thread)
{
	rt_mutex_lock(&column->mutex);
	if (column->boosted == thread)
		gang_boost_end(column);
	else
		gang_reclass(thread, GANG_CLASS_OWN);
	rt_mutex_unlock(&column->mutex);
}
