// SPDX-License-Identifier: GPL-2.0
/*
 * Favour: how the member whose slot it is gets its CPU.
 *
 * Neither yield_to() nor a change of class can be done where the leader decides, in an
 * interrupt. So every CPU of a domain has a worker thread, and a kick is: the leader's
 * interrupt (smp_call_function_single_async) to the fellow, which wakes its own worker.
 *
 *   buddy   The worker is a nice -20 thread of the fair class. It yields to the member:
 *           the fair class takes that for its next buddy, and picks it unless that were
 *           too unfair. A hint, as in the RFC's first version.
 *   boost   The worker is real-time and raises the member to SCHED_FIFO 1 until the slot
 *           ends; nothing ordinary runs before it. The RFC's second version.
 *
 * A boost never outlives its slot. Who is boosted on a CPU is one pointer, changed under
 * the column's mutex, and whoever takes a member out (control.c) comes past
 * gang_unboost(). What is restored is what was found: class, the nice value it has by
 * then, reset-on-fork, slice and timer slack. A member that somebody else has given
 * another class meanwhile is left with that. Children of a boosted thread start as
 * ordinary ones (SCHED_RESET_ON_FORK). Threads that are real-time anyway are not touched.
 */
#include <linux/kthread.h>
#include <linux/sched/task.h>
#include <uapi/linux/sched/types.h>

#include "compat.h"
#include "gang.h"

#define BOOST_PRIORITY 1

static bool ours(const struct task_struct *task)
{
	return task->policy == SCHED_FIFO && task->rt_priority == BOOST_PRIORITY;
}

static void set_boosted(struct gang_column *column, struct gang_thread *thread)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	column->boosted = thread;
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
}

static bool boost(struct gang_column *column, struct gang_thread *thread)
{
	struct task_struct *task = thread->task;
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_FIFO,
		.sched_priority = BOOST_PRIORITY,
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	};

	thread->policy = READ_ONCE(task->policy);
	if (thread->policy != SCHED_NORMAL && thread->policy != SCHED_BATCH &&
	    thread->policy != SCHED_IDLE)
		return false;
	thread->reset_on_fork = task->sched_reset_on_fork;
	thread->slice = gang_own_slice(task);
	thread->slack = task->timer_slack_ns;
	set_boosted(column, thread);
	if (sched_setattr_nocheck(task, &attr)) {
		set_boosted(column, NULL);
		return false;
	}
	gang_count(GANG_COUNT_BOOSTS);
	return true;
}

#ifdef GANG_DEBUG
bool gang_boost_for_test(struct gang_column *column, struct gang_thread *thread)
{
	return boost(column, thread);
}
#endif

/* Put back who is boosted on this CPU; @thread: only if it is that one. With column->mutex. */
static void unboost(struct gang_column *column, struct gang_thread *thread)
{
	struct gang_thread *boosted = column->boosted;
	struct task_struct *task;
	struct sched_attr attr = {.size = sizeof(attr)};

	if (!boosted || (thread && thread != boosted))
		return;
	task = boosted->task;
	if (ours(task)) {
		attr.sched_policy = boosted->policy;
		attr.sched_nice = task_nice(task);
		attr.sched_runtime = boosted->slice;
		if (boosted->reset_on_fork)
			attr.sched_flags = SCHED_FLAG_RESET_ON_FORK;
		sched_setattr_nocheck(task, &attr);
		if (task->timer_slack_ns != boosted->slack)
			task->timer_slack_ns = boosted->slack;
	}
	set_boosted(column, NULL);
	gang_count(GANG_COUNT_UNBOOSTS);
}

/* @thread leaves its gang, which no longer names it: nobody boosts it after this. */
void gang_unboost(struct gang_column *column, struct gang_thread *thread)
{
	mutex_lock(&column->mutex);
	unboost(column, thread);
	mutex_unlock(&column->mutex);
}

static struct gang_thread *wanted(struct gang_column *column, bool *out_of_place)
{
	struct gang_thread *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	thread = gang_slot_owner(column, out_of_place);
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
	return thread;
}

/*
 * Asked again after every change: a slot that was opened while the change was under way
 * did not see it and has poked nobody.
 */
static void set_boost(struct gang_column *column)
{
	struct gang_thread *want;
	bool out_of_place;
	int tries;

	for (tries = 0; tries < 8; tries++) {
		want = wanted(column, &out_of_place);
		if (want == column->boosted)
			return;
		unboost(column, NULL);
		if (want && !boost(column, want))
			return;
	}
	unboost(column, NULL);
}

static void name_buddy(struct gang_column *column)
{
	bool out_of_place;
	struct gang_thread *want = wanted(column, &out_of_place);

	if (!want || !out_of_place)
		return;
	if (yield_to(want->task, true) > 0)
		gang_count(GANG_COUNT_BUDDIES);
}

static int work(void *data)
{
	struct gang_column *column = data;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!atomic_xchg(&column->poked, 0)) {
			if (!kthread_should_stop())
				schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		mutex_lock(&column->mutex);
		if (READ_ONCE(column->dom->favour) == GANG_FAVOUR_BOOST)
			set_boost(column);
		else
			name_buddy(column);
		mutex_unlock(&column->mutex);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/* The leader's interrupt has arrived. */
static void kicked(void *data)
{
	struct gang_column *column = data;

	wake_up_process(column->worker);
}

/* From an interrupt, on whatever CPU leads. A kick that is under way already will do. */
void gang_poke(struct gang_column *column)
{
	atomic_set(&column->poked, 1);
	gang_count(GANG_COUNT_KICKS);
	if (column->cpu == smp_processor_id())
		wake_up_process(column->worker);
	else if (smp_call_function_single_async(column->cpu, &column->kick) == -ENXIO)
		wake_up_process(column->worker); /* the CPU is offline, its worker elsewhere */
}

/* Real-time workers boost; yield_to() works between threads of one class only. */
void gang_worker_class(struct gang_column *column)
{
	if (column->dom->favour == GANG_FAVOUR_BOOST)
		sched_set_fifo(column->worker);
	else
		sched_set_normal(column->worker, MIN_NICE);
}

int gang_worker_start(struct gang_column *column)
{
	mutex_init(&column->mutex);
	INIT_CSD(&column->kick, kicked, column);
	column->worker = kthread_create_on_cpu(work, column, column->cpu, "gang/%u");
	if (IS_ERR(column->worker)) {
		int error = PTR_ERR(column->worker);

		column->worker = NULL;
		return error;
	}
	gang_worker_class(column);
	wake_up_process(column->worker);
	return 0;
}

static void nothing(void *data)
{
}

/*
 * No leader is left, so no new kick; one under way is waited for. Twice: a CPU serves those
 * that somebody waits for before the others, so the kick may follow the first call.
 */
void gang_worker_stop(struct gang_column *column)
{
	if (!column->worker)
		return;
	smp_call_function_single(column->cpu, nothing, NULL, 1);
	smp_call_function_single(column->cpu, nothing, NULL, 1);
	kthread_stop(column->worker);
	unboost(column, NULL);
}
