// SPDX-License-Identifier: GPL-2.0
/*
 * gang.ko: gang scheduling beside the default scheduler, for kernels without sched_ext.
 *
 * The idea is that of the gang scheduling RFC of 2011 (Nikunj A Dadhania, LKML): the CPU
 * that picks a thread of a gang leads, and sends an interrupt to its fellows, which then
 * favour their own member. A module cannot change what the fair class picks. It can watch
 * what was picked (tracepoint sched_switch), and raise a thread to a real-time class for the
 * length of a slot. Everything used is exported.
 *
 * This file has the two ends: what the tracepoints tell, and load and unload. While
 * there is no gang no tracepoint is hooked and no timer runs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hashtable.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "gang.h"

DEFINE_MUTEX(gang_control);

static DEFINE_HASHTABLE(threads, 9);
static DEFINE_SPINLOCK(threads_lock);
static DEFINE_PER_CPU(struct gang_column *, column_here);
static DEFINE_PER_CPU(u64[GANG_COUNTS], counts);

void gang_count(enum gang_count what)
{
	this_cpu_inc(counts[what]);
}

u64 gang_counted(enum gang_count what)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(counts, cpu)[what];
	return sum;
}

/* ---- the table of members --------------------------------------------- */

void gang_thread_add(struct gang_thread *thread)
{
	spin_lock(&threads_lock);
	hash_add_rcu(threads, &thread->node, (unsigned long)thread->task);
	spin_unlock(&threads_lock);
}

void gang_thread_del(struct gang_thread *thread)
{
	spin_lock(&threads_lock);
	hash_del_rcu(&thread->node);
	spin_unlock(&threads_lock);
}

/* Callers have interrupts off or hold rcu_read_lock(). */
static struct gang_thread *thread_of(struct task_struct *task)
{
	struct gang_thread *thread;

	hash_for_each_possible_rcu(threads, thread, node,
				   (unsigned long)task) if (thread->task == task) return thread;
	return NULL;
}

void gang_column_here(unsigned int cpu, struct gang_column *column)
{
	WRITE_ONCE(per_cpu(column_here, cpu), column);
}

struct gang_column *gang_column_of(unsigned int cpu)
{
	return READ_ONCE(per_cpu(column_here, cpu));
}

/* ---- the tracepoints ------------------------------------------------- */

/* A thread of the kernel that runs on this CPU or nowhere. */
static bool bound(struct task_struct *task)
{
	return (task->flags & PF_KTHREAD) && task->nr_cpus_allowed == 1;
}

/* A task that competes for slots. A bound thread of the kernel does not: a member gives way to it.
 */
static bool ordinary(struct task_struct *task)
{
	return !is_idle_task(task) && !bound(task);
}

/* True if a boosted member keeps @task from its CPU. */
static bool kept_out(struct task_struct *task)
{
	return bound(task) && task->prio >= MAX_RT_PRIO - 1 - GANG_BOOST_PRIORITY;
}

static void other_off(struct gang_column *here, struct task_struct *prev, bool blocked,
		      bool preempted)
{
	if (blocked && kept_out(prev))
		gang_bound_sleeps(here);
	if (!here->other_runs)
		return;
	WRITE_ONCE(here->other_runs, false);
	if (blocked)
		WRITE_ONCE(here->other_waits, false);
	else if (preempted)
		WRITE_ONCE(here->other_waits, true);
}

static void other_on(struct gang_column *here, struct task_struct *next)
{
	if (is_idle_task(next)) {
		WRITE_ONCE(here->other_waits, false); /* nobody does */
		WRITE_ONCE(here->bound_nr, 0);
	} else if (ordinary(next)) {
		WRITE_ONCE(here->other_runs, true);
		WRITE_ONCE(here->other_ran, true);
	} else if (kept_out(next)) {
		gang_bound_runs(here);
	}
}

/* With the lock of this CPU's runqueue held and interrupts off: no wakeups, no printk. */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	struct gang_thread *from, *to;
	struct gang_column *here;
	bool blocked = !preempt && prev_state;
	u64 now;

	rcu_read_lock();
	here = gang_column_of(smp_processor_id());
	from = thread_of(prev);
	to = thread_of(next);
	if (here || from || to) {
		now = ktime_get_ns();
		if (from)
			gang_off_cpu(from, here, blocked, now);
		else if (here)
			other_off(here, prev, blocked, to);
		if (to) {
			gang_on_cpu(to, here, now);
			if (here && READ_ONCE(here->gives_way) && READ_ONCE(here->boosted) == to)
				gang_way_missed(here);
		} else if (here) {
			other_on(here, next);
		}
	}
	rcu_read_unlock();
}

/* With the lock of the task's runqueue held. */
static void on_wakeup(void *data, struct task_struct *task)
{
	struct gang_thread *thread;
	struct gang_column *column;

	rcu_read_lock();
	thread = thread_of(task);
	if (thread) {
		gang_woken(thread, ktime_get_ns());
	} else {
		column = gang_column_of(task_cpu(task));
		if (column && ordinary(task))
			WRITE_ONCE(column->other_waits, true);
		else if (column && kept_out(task))
			gang_bound_woken(column);
	}
	rcu_read_unlock();
}

static void reap(struct work_struct *work)
{
	mutex_lock(&gang_control);
	gang_reap();
	mutex_unlock(&gang_control);
}

static DECLARE_WORK(reaper, reap);

/* From do_exit(), of the thread that exits: no lock is held. */
static void on_exit(void *data, struct task_struct *task)
{
	struct gang_thread *thread;

	rcu_read_lock();
	thread = thread_of(task);
	if (thread) {
		WRITE_ONCE(thread->ended, true);
		schedule_work(&reaper);
	}
	rcu_read_unlock();
}

/* In fork(), of the parent: @child does not run yet. */
static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	struct gang_thread *thread;

	rcu_read_lock();
	thread = thread_of(parent);
	if (thread)
		gang_forked(thread, child);
	rcu_read_unlock();
}

static struct hook {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} hooks[] = {
	{"sched_switch", on_switch},	 {"sched_wakeup", on_wakeup},
	{"sched_wakeup_new", on_wakeup}, {"sched_process_exit", on_exit},
	{"sched_process_fork", on_fork},
};

/* Tracepoints are not exported one by one, but may be looked for. */
static void find_hook(struct tracepoint *tracepoint, void *data)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(tracepoint->name, hooks[i].name))
			hooks[i].tracepoint = tracepoint;
}

static void unhook(int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].tracepoint, hooks[count].probe, NULL);
}

/* With the first gang: begin to watch. */
int gang_watch(void)
{
	int i, error;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = tracepoint_probe_register(hooks[i].tracepoint, hooks[i].probe, NULL);
		if (error) {
			unhook(i);
			return error;
		}
	}
	return 0;
}

/* With the last: nobody is in a probe when this returns. */
void gang_unwatch(void)
{
	unhook(ARRAY_SIZE(hooks));
	tracepoint_synchronize_unregister();
}

/* ---- load and unload ------------------------------------------------- */

/* Kernels on which a boost would do harm. */
static int __init refused(void)
{
	const char *why = NULL;

	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		why = "with PREEMPT_RT the kernel's own threads are real-time tasks as low as boosted vCPUs";
	if (IS_ENABLED(CONFIG_RT_GROUP_SCHED))
		why = "with RT_GROUP_SCHED a boosted vCPU in a group without real-time runtime stands still";
	if (!why)
		return 0;
	pr_err("cannot load: %s\n", why);
	return -EOPNOTSUPP;
}

static int __init gang_init(void)
{
	int i, error;

	error = refused();
	if (error)
		return error;
	for_each_kernel_tracepoint(find_hook, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!hooks[i].tracepoint) {
			pr_err("cannot load: this kernel has no tracepoint %s\n", hooks[i].name);
			return -ENODEV;
		}
	}
	error = gang_selftest();
	if (error)
		return error;
	error = gang_sysfs_init();
	if (error)
		return error;
	error = gang_dev_init();
	if (error)
		gang_sysfs_exit();
	return error;
}

static void __exit gang_exit(void)
{
	gang_dev_exit();
	gang_sysfs_exit();
	mutex_lock(&gang_control);
	gang_drop_all(NULL);
	mutex_unlock(&gang_control);
	cancel_work_sync(&reaper);
	gang_forks_flush();
	rcu_barrier();
}

module_init(gang_init);
module_exit(gang_exit);
MODULE_DESCRIPTION(GANG_DESCRIPTION);
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
