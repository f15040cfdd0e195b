// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler's tracepoints tell which member runs, wakes, forks and exits. While there is no
 * gang, the module hooks no tracepoint.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched/rt.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "account.h"
#include "registry.h"
#include "watch.h"
#include "yield.h"

/* Return true if @task is a kernel thread that runs on this CPU or nowhere. */
static bool bound(struct task_struct *task)
{
	return (task->flags & PF_KTHREAD) && task->nr_cpus_allowed == 1;
}

/* Return true if a boosted member keeps @task from its CPU. */
static bool kept_out(struct task_struct *task)
{
	return bound(task) && task->prio >= MAX_RT_PRIO - 1 - GANG_BOOST_PRIORITY;
}

/*
 * Note that from @now on an ordinary task is on CPU, or none is; @blocked: the task that was on CPU
 * went to sleep. EEVDF keeps a sleeper in its queue for a while, where it looks like a task that
 * waits.
 */
static void others_run(struct gang_column *here, bool ordinary, bool blocked, u64 now)
{
	if (here->other_since) {
		WRITE_ONCE(here->other_ns, here->other_ns + now - here->other_since);
		WRITE_ONCE(here->other_asleep, blocked);
	}
	if (ordinary)
		WRITE_ONCE(here->other_asleep, false);
	WRITE_ONCE(here->other_since, ordinary ? now : 0);
}

/*
 * The scheduler calls this with the lock of this CPU's runqueue held and interrupts off: the probe
 * may neither wake a thread nor use printk.
 */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	struct gang_thread *from, *to;
	struct gang_column *here;
	bool blocked = !preempt && prev_state;
	u64 now;

	rcu_read_lock();
	here = gang_column_of(smp_processor_id());
	from = gang_thread_of(prev);
	to = gang_thread_of(next);
	if (here || from || to) {
		now = ktime_get_ns();
		if (here)
			others_run(here, !to && !is_idle_task(next) && !bound(next), blocked, now);
		if (from)
			gang_off_cpu(from, here, blocked, now);
		else if (here && blocked && kept_out(prev))
			gang_bound_sleeps(here);
		if (to) {
			gang_on_cpu(to, here, now);
			if (here && READ_ONCE(to->class) == GANG_CLASS_LOWERED)
				gang_lowered_runs(here);
		} else if (here && is_idle_task(next)) {
			WRITE_ONCE(here->bound_nr, 0);
		} else if (here && kept_out(next)) {
			gang_bound_runs(here);
		}
	}
	rcu_read_unlock();
}

/* The scheduler calls this with the lock of the task's runqueue held. */
static void on_wakeup(void *data, struct task_struct *task)
{
	struct gang_thread *thread;
	struct gang_column *column;

	rcu_read_lock();
	thread = gang_thread_of(task);
	if (thread) {
		gang_woken(thread, ktime_get_ns());
	} else {
		column = gang_column_of(task_cpu(task));
		if (column && kept_out(task))
			gang_bound_woken(column);
		else if (column && !bound(task))
			WRITE_ONCE(column->other_asleep, false);
	}
	rcu_read_unlock();
}

/*
 * do_exit() calls this in the thread that exits, without a lock. @data is the work that takes the
 * member out.
 */
static void on_exit(void *data, struct task_struct *task)
{
	struct gang_thread *thread;

	rcu_read_lock();
	thread = gang_thread_of(task);
	if (thread) {
		WRITE_ONCE(thread->ended, true);
		schedule_work(data);
	}
	rcu_read_unlock();
}

/* fork() calls this in the parent: @child does not run yet. */
static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	struct gang_thread *thread;

	rcu_read_lock();
	thread = gang_thread_of(parent);
	if (thread)
		gang_forked(thread, child);
	rcu_read_unlock();
}

static struct work_struct *watched; /* the work that the probes schedule when a member exits */

static struct hook {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} hooks[] = {
	{.name = "sched_switch", .probe = on_switch},
	{.name = "sched_wakeup", .probe = on_wakeup},
	{.name = "sched_wakeup_new", .probe = on_wakeup},
	{.name = "sched_process_exit", .probe = on_exit},
	{.name = "sched_process_fork", .probe = on_fork},
};

/*
 * Note the tracepoint if it is one to hook. The kernel does not export tracepoints one by one, but
 * lets a module look for them.
 */
static void find_hook(struct tracepoint *tracepoint, void *data)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(tracepoint->name, hooks[i].name))
			hooks[i].tracepoint = tracepoint;
}

int __init gang_watch_init(void)
{
	int i;

	for_each_kernel_tracepoint(find_hook, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!hooks[i].tracepoint) {
			pr_err("cannot load: this kernel has no tracepoint %s\n", hooks[i].name);
			return -ENODEV;
		}
	}
	return 0;
}

static void unhook(int count, void *data)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].tracepoint, hooks[count].probe, data);
}

/* Hook the probes, when the first gang comes. They schedule @exited when a member has exited. */
int gang_watch(struct work_struct *exited)
{
	int i, error;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = tracepoint_probe_register(hooks[i].tracepoint, hooks[i].probe, exited);
		if (error) {
			unhook(i, exited);
			return error;
		}
	}
	watched = exited;
	return 0;
}

/* Unhook the probes, when the last gang goes. No CPU is in a probe when this returns. */
void gang_unwatch(void)
{
	unhook(ARRAY_SIZE(hooks), watched);
	tracepoint_synchronize_unregister();
}
