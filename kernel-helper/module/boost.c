// SPDX-License-Identifier: GPL-2.0
/*
 * The boost: how the member whose slot it is gets its CPU.
 *
 * A change of class cannot be made where the leader decides, in an interrupt. So every CPU
 * of a domain has a worker thread, and a kick is: the leader's interrupt
 * (smp_call_function_single_async) to the fellow, which wakes its own worker. The worker is
 * real-time and raises the member to SCHED_FIFO 1 until the slot ends; nothing ordinary runs
 * before it. It gives way to threads of the kernel that are bound to its CPU. (A hint to the
 * fair class instead, the next buddy of the RFC's first version, was worth nothing measurable.)
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
#include <linux/slab.h>
#include <uapi/linux/sched/types.h>

#include "compat.h"
#include "gang.h"

#define GIVE_WAY_NS NSEC_PER_MSEC
#define WAYS_IDLE   4

/* True if nobody else has given the boosted @task of @column another class. */
static bool ours(const struct gang_column *column, const struct task_struct *task)
{
	if (column->gives_way)
		return task->policy == SCHED_IDLE;
	return task->policy == SCHED_FIFO && task->rt_priority == GANG_BOOST_PRIORITY;
}

/* Children are ordinary all the same, see gang_forked(). */
static int raise(struct task_struct *task)
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

static bool boost(struct gang_column *column, struct gang_thread *thread)
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
	if (raise(task)) {
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
	if (ours(column, task)) {
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
	unboost(column, thread);
	mutex_unlock(&column->mutex);
}

static struct gang_thread *wanted(struct gang_column *column)
{
	struct gang_thread *thread;
	unsigned long flags;

	raw_spin_lock_irqsave(&column->dom->lock, flags);
	thread = gang_slot_owner(column);
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
	int tries;

	for (tries = 0; tries < 8; tries++) {
		want = wanted(column);
		if (want == column->boosted)
			return;
		unboost(column, NULL);
		if (want && !boost(column, want))
			return;
	}
	unboost(column, NULL);
}

/* ---- giving way -------------------------------------------------------- */

/*
 * A thread of the kernel that is bound to a CPU cannot go elsewhere, and a guest's own I/O may wait
 * for it. The boosted member is made SCHED_IDLE, below everybody, until no such thread is runnable,
 * or for GIVE_WAY_NS; then it has the CPU for as long.
 */
static void open_way(struct gang_column *column, u64 now)
{
	struct task_struct *task = column->boosted->task;
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
		.sched_nice = task_nice(task),
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	};

	if (!ours(column, task))
		return;
	WRITE_ONCE(column->way_used, false);
	WRITE_ONCE(column->way_missed, false);
	WRITE_ONCE(column->gives_way, true);
	if (sched_setattr_nocheck(task, &attr))
		WRITE_ONCE(column->gives_way, false);
	column->way_edge = now + GIVE_WAY_NS;
	gang_count(GANG_COUNT_WAYS);
}

/* A count that nobody answers to is wrong: a thread may change its class or its CPUs. */
static void close_way(struct gang_column *column, u64 now)
{
	bool kept = ours(column, column->boosted->task), over = now >= column->way_edge;

	WRITE_ONCE(column->gives_way, false);
	if (kept)
		raise(column->boosted->task);
	column->way_edge = over ? now + GIVE_WAY_NS : now;
	column->way_idle = READ_ONCE(column->way_used) ? 0 : column->way_idle + 1;
	if (column->way_idle < WAYS_IDLE)
		return;
	column->way_idle = 0;
	WRITE_ONCE(column->bound_nr, 0);
}

/* The boost is set. Returns for how long it is right if nobody pokes, ns; 0: for ever. */
static u64 set_way(struct gang_column *column)
{
	u64 now = ktime_get_ns();

	if (!column->boosted)
		return 0;
	if (column->gives_way && (!READ_ONCE(column->bound_nr) || now >= column->way_edge))
		close_way(column, now);
	else if (!column->gives_way && READ_ONCE(column->bound_nr) && now >= column->way_edge)
		open_way(column, now);
	if (!column->gives_way && !READ_ONCE(column->bound_nr))
		return 0;
	return column->way_edge > now ? column->way_edge - now : 1;
}

/* With the lock of the column's runqueue held, as the next three. */
void gang_bound_woken(struct gang_column *column)
{
	WRITE_ONCE(column->bound_nr, column->bound_nr + 1);
	if (READ_ONCE(column->boosted) && !READ_ONCE(column->gives_way))
		irq_work_queue(&column->way);
}

void gang_bound_runs(struct gang_column *column)
{
	WRITE_ONCE(column->way_used, true);
	WRITE_ONCE(column->way_missed, false);
}

void gang_bound_sleeps(struct gang_column *column)
{
	u32 nr = READ_ONCE(column->bound_nr);

	WRITE_ONCE(column->bound_nr, nr ? nr - 1 : 0);
	if (nr <= 1 && READ_ONCE(column->gives_way))
		irq_work_queue(&column->way);
}

/*
 * The member that gives way was picked: EEVDF takes it if who waits is not eligible by a hair. A
 * moment later it is not eligible itself, so the CPU is made to pick again, once.
 */
void gang_way_missed(struct gang_column *column)
{
	if (!READ_ONCE(column->bound_nr) || column->way_missed)
		return;
	column->way_missed = true;
	irq_work_queue(&column->way);
}

static void poke_here(struct irq_work *work)
{
	gang_poke(container_of(work, struct gang_column, way));
}

/* A child of a member that gave way. SCHED_FIFO is reset on fork, SCHED_IDLE is not. */
struct fork {
	struct llist_node node;
	struct task_struct *task;
	u32 policy;
};
static LLIST_HEAD(forks);

static void reset_forks(struct work_struct *work)
{
	struct fork *fork, *next;

	llist_for_each_entry_safe(fork, next, llist_del_all(&forks), node)
	{
		struct sched_attr attr = {.size = sizeof(attr), .sched_policy = fork->policy};

		attr.sched_nice = task_nice(fork->task);
		sched_setattr_nocheck(fork->task, &attr);
		put_task_struct(fork->task);
		kfree(fork);
	}
}

static DECLARE_WORK(fork_work, reset_forks);

void gang_forked(struct gang_thread *parent, struct task_struct *child)
{
	const struct gang_column *column = &parent->gang->dom->column[parent->column];
	u32 policy = READ_ONCE(parent->policy);
	struct fork *fork;

	if (!READ_ONCE(column->gives_way) || READ_ONCE(column->boosted) != parent ||
	    child->policy != SCHED_IDLE || policy == SCHED_IDLE)
		return;
	fork = kmalloc(sizeof(*fork), GFP_ATOMIC);
	if (!fork)
		return;
	fork->task = get_task_struct(child);
	fork->policy = policy;
	llist_add(&fork->node, &forks);
	schedule_work(&fork_work);
}

/* No probe runs any more. */
void gang_forks_flush(void)
{
	flush_work(&fork_work);
}

/* ---- the worker --------------------------------------------------------- */

/* Until it is poked, or for @ns; 0: for ever. */
static void doze(struct gang_column *column, u64 ns)
{
	ktime_t most = ns_to_ktime(ns);

	set_current_state(TASK_INTERRUPTIBLE);
	if (!atomic_read(&column->poked) && !kthread_should_stop())
		schedule_hrtimeout_range(ns ? &most : NULL, 0, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
	atomic_set(&column->poked, 0);
}

static int work(void *data)
{
	struct gang_column *column = data;
	u64 ns = 0;

	while (!kthread_should_stop()) {
		doze(column, ns);
		mutex_lock(&column->mutex);
		set_boost(column);
		ns = set_way(column);
		mutex_unlock(&column->mutex);
	}
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

int gang_worker_start(struct gang_column *column)
{
	mutex_init(&column->mutex);
	INIT_CSD(&column->kick, kicked, column);
	column->way = IRQ_WORK_INIT_HARD(poke_here);
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
	irq_work_sync(&column->way);
	smp_call_function_single(column->cpu, nothing, NULL, 1);
	smp_call_function_single(column->cpu, nothing, NULL, 1);
	kthread_stop(column->worker);
	unboost(column, NULL);
}
