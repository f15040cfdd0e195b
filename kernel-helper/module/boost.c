// SPDX-License-Identifier: GPL-2.0
/*
 * The boost: a member is SCHED_FIFO 1 while the slot is its gang's, so that nothing ordinary runs
 * before it. (A hint to the fair class instead, the next buddy of the RFC's first version, was
 * worth nothing measurable.)
 *
 * A boost never outlives its slot. Who is boosted on a CPU is one pointer, changed under
 * the column's mutex, and whoever takes a member out (control.c) comes past
 * gang_unboost(). What is restored is what was found: class, the nice value it has by
 * then, reset-on-fork, slice and timer slack. A member that somebody else has given
 * another class meanwhile is left with that. Children of a boosted thread start as
 * ordinary ones (SCHED_RESET_ON_FORK). Threads that are real-time anyway are not touched.
 */
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "boost.h"
#include "compat.h"
#include "count.h"

/* True if nobody else has given the boosted member of @column another class. */
bool gang_boost_kept(const struct gang_column *column)
{
	const struct task_struct *task = column->boosted->task;

	if (column->gives_way)
		return task->policy == SCHED_IDLE;
	return task->policy == SCHED_FIFO && task->rt_priority == GANG_BOOST_PRIORITY;
}

/* Children are ordinary all the same, see gang_forked(). */
int gang_raise(struct task_struct *task)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_FIFO,
		.sched_priority = GANG_BOOST_PRIORITY,
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	};

	return sched_setattr_nocheck(task, &attr);
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
	struct task_struct *task = thread->task;

	thread->policy = READ_ONCE(task->policy);
	if (thread->policy != SCHED_NORMAL && thread->policy != SCHED_BATCH &&
	    thread->policy != SCHED_IDLE)
		return false;
	thread->reset_on_fork = task->sched_reset_on_fork;
	thread->slice = gang_own_slice(task);
	thread->slack = task->timer_slack_ns;
	set_boosted(column, thread);
	if (gang_raise(task)) {
		set_boosted(column, NULL);
		return false;
	}
	gang_count(GANG_COUNT_BOOSTS);
	return true;
}

/* Put back who is boosted on this CPU; @thread: only if it is that one, NULL: whoever it is. */
void gang_boost_end(struct gang_column *column, struct gang_thread *thread)
{
	struct gang_thread *boosted = column->boosted;
	struct task_struct *task;
	struct sched_attr attr = {.size = sizeof(attr)};

	if (!boosted || (thread && thread != boosted))
		return;
	task = boosted->task;
	if (gang_boost_kept(column)) {
		attr.sched_policy = boosted->policy;
		attr.sched_nice = task_nice(task);
		attr.sched_runtime = boosted->slice;
		if (boosted->reset_on_fork)
			attr.sched_flags = SCHED_FLAG_RESET_ON_FORK;
		WARN_ON_ONCE(sched_setattr_nocheck(task, &attr));
		if (task->timer_slack_ns != boosted->slack)
			task->timer_slack_ns = boosted->slack;
	}
	WRITE_ONCE(column->gives_way, false);
	set_boosted(column, NULL);
	gang_count(GANG_COUNT_UNBOOSTS);
}

/* @thread leaves its gang, which no longer names it: nobody boosts it after this. */
void gang_unboost(struct gang_column *column, struct gang_thread *thread)
{
	mutex_lock(&column->mutex);
	gang_boost_end(column, thread);
	mutex_unlock(&column->mutex);
}
