// SPDX-License-Identifier: GPL-2.0
/*
 * The worker: a real-time thread for each CPU of a domain, bound to it. The interrupt in which a
 * leader decides cannot change a class, so the leader's kick wakes the worker, which raises and
 * lowers the members of its CPU, or puts them back.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/kthread.h>
#include <linux/rtmutex.h>

#include "boost.h"
#include "kick.h"
#include "share.h"
#include "slot.h"
#include "yield.h"
#include "worker.h"

#define FAIR_NS (5 * NSEC_PER_MSEC)

/* Return the thread to boost, or NULL. Set *@owed if the column belongs to ordinary tasks. */
static struct gang_thread *wanted(struct gang_column *column, bool *owed)
{
	struct gang_thread *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	thread = gang_slot_owner(column);
	*owed = !thread && gang_slot_owed(column);
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
	return thread;
}

/*
 * Restore the class of every member on this CPU, then read the shares: a raised or lowered thread
 * has no fair weight. A group that had boosted members weighs too much at first, since the kernel
 * divides its weight by the load that it lately had on each CPU (calc_group_shares()). The function
 * therefore reads such weights as settled once the members have been ordinary for FAIR_NS.
 */
static void put_back(struct gang_column *column)
{
	u64 now = ktime_get_ns();

	if (!column->boosted && now - column->fair_since >= FAIR_NS)
		gang_share_set(column, true);
	if (column->boosted)
		column->fair_since = now;
	gang_boost_end(column);
	if (column->owed)
		gang_lower_end(column);
	gang_share_set(column, false);
}

/*
 * Give the members of this CPU the classes that the slot asks for. The worker reads the slot again
 * after every change: a leader that opened a slot while the change was under way did not see the
 * change, and has kicked no worker.
 */
static void set_classes(struct gang_column *column)
{
	struct gang_thread *want;
	int tries;
	bool owed;

	for (tries = 0; tries < 8; tries++) {
		want = wanted(column, &owed);
		if (want == column->boosted && owed == column->owed)
			return;
		put_back(column);
		if (owed)
			gang_lower(column);
		if (want && !gang_boost(column, want))
			return;
	}
	put_back(column);
}

/* Sleep until a kick, or for @ns at most; 0: until a kick. */
static void doze(struct gang_column *column, u64 ns)
{
	ktime_t most = ns_to_ktime(ns);

	set_current_state(TASK_INTERRUPTIBLE);
	if (!atomic_read(&column->poked) && !kthread_should_stop())
		schedule_hrtimeout_range(ns ? &most : NULL, 0, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
	atomic_set(&column->poked, 0);
}

/*
 * Bind the worker again: the kernel unbinds a worker that is woken while its CPU is offline, and
 * share.c needs it on its CPU.
 */
static void bind(struct gang_column *column)
{
	if (current->nr_cpus_allowed > 1 && cpu_online(column->cpu))
		set_cpus_allowed_ptr(current, cpumask_of(column->cpu));
}

static int work(void *data)
{
	struct gang_column *column = data;
	u64 ns = 0;

	while (!kthread_should_stop()) {
		doze(column, ns);
		bind(column);
		rt_mutex_lock(&column->mutex);
		set_classes(column);
		ns = gang_way_set(column);
		rt_mutex_unlock(&column->mutex);
	}
	return 0;
}

int gang_worker_start(struct gang_column *column)
{
	rt_mutex_init(&column->mutex);
	gang_kick_start(column);
	column->worker = kthread_create_on_cpu(work, column, column->cpu, "gang/%u");
	if (IS_ERR(column->worker)) {
		int error = PTR_ERR(column->worker);

		column->worker = NULL;
		return error;
	}
	sched_set_fifo(column->worker);
	wake_up_process(column->worker);
	return 0;
}

/* Stop the worker. No leader is left, so no new kick comes. */
void gang_worker_stop(struct gang_column *column)
{
	if (!column->worker)
		return;
	gang_kick_stop(column);
	kthread_stop(column->worker);
	put_back(column);
}
