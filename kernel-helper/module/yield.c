// SPDX-License-Identifier: GPL-2.0
/*
 * A boosted member gives way to kernel threads that are bound to its CPU.
 *
 * Such a thread cannot run on another CPU, and a guest's own I/O may wait for it. The worker makes
 * the boosted member SCHED_IDLE, below all other tasks, until no such thread is runnable, or for
 * GIVE_WAY_NS; then the member has the CPU for as long.
 */
#include <linux/ktime.h>
#include <linux/llist.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <uapi/linux/sched/types.h>

#include "boost.h"
#include "count.h"
#include "kick.h"
#include "share.h"
#include "yield.h"

#define GIVE_WAY_NS NSEC_PER_MSEC
#define WAYS_IDLE   4
#define WAYS_MOST   32 /* beyond this the thread waits like an ordinary task */

static void open_way(struct gang_column *column, u64 now)
{
	if (column->boosted->class != GANG_CLASS_RAISED)
		return;
	WRITE_ONCE(column->way_used, false);
	WRITE_ONCE(column->way_missed, false);
	if (!column->way_idle)
		column->way_others = READ_ONCE(column->other_ns);
	WRITE_ONCE(column->gives_way, true);
	if (!gang_reclass(column->boosted, GANG_CLASS_LOWERED))
		WRITE_ONCE(column->gives_way, false);
	column->way_edge = now + GIVE_WAY_NS;
	gang_count(GANG_COUNT_WAYS);
}

/*
 * Return true if bound_nr is wrong, since no thread uses the ways: a thread may change its class or
 * its CPUs. But members of other gangs use a way, too, while EEVDF owes them more; then the count
 * stays as long as a task waits that is not a member. If ordinary tasks used the ways, the fair
 * class has decided, and the count is given up.
 */
static bool count_is_wrong(struct gang_column *column)
{
	unsigned long flags;
	bool waits;

	if (column->way_idle < WAYS_IDLE)
		return false;
	if (column->way_idle >= WAYS_MOST || READ_ONCE(column->other_ns) != column->way_others)
		return true;
	raw_spin_lock_irqsave(&column->dom->lock, flags);
	waits = gang_others_there(column);
	raw_spin_unlock_irqrestore(&column->dom->lock, flags);
	return !waits;
}

static void close_way(struct gang_column *column, u64 now)
{
	bool over = now >= column->way_edge;

	WRITE_ONCE(column->gives_way, false);
	if (column->boosted->class == GANG_CLASS_LOWERED)
		gang_reclass(column->boosted, GANG_CLASS_RAISED);
	column->way_edge = over ? now + GIVE_WAY_NS : now;
	column->way_idle = READ_ONCE(column->way_used) ? 0 : column->way_idle + 1;
	if (!count_is_wrong(column))
		return;
	column->way_idle = 0;
	WRITE_ONCE(column->bound_nr, 0);
}

/*
 * Open or close a way, once the boost is set. Return for how many ns that stays right if no CPU
 * kicks the worker; 0: for ever.
 */
u64 gang_way_set(struct gang_column *column)
{
	u64 now = ktime_get_ns();

	/* A member that another program gave another class keeps no thread out on our account. */
	if (!column->boosted || column->boosted->class == GANG_CLASS_OWN)
		return 0;
	if (column->gives_way && (!READ_ONCE(column->bound_nr) || now >= column->way_edge))
		close_way(column, now);
	else if (!column->gives_way && READ_ONCE(column->bound_nr) && now >= column->way_edge)
		open_way(column, now);
	if (!column->gives_way && !READ_ONCE(column->bound_nr))
		return 0;
	return column->way_edge > now ? column->way_edge - now : 1;
}

/* The caller holds the lock of the column's runqueue, as do those of the next three functions. */
void gang_bound_woken(struct gang_column *column)
{
	WRITE_ONCE(column->bound_nr, column->bound_nr + 1);
	if (READ_ONCE(column->boosted) && !READ_ONCE(column->gives_way))
		gang_poke_soon(column);
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
		gang_poke_soon(column);
}

/*
 * Make the CPU pick again, once, if it picked a lowered member although another task waits. EEVDF
 * picks that member if the task that waits misses eligibility by a hair. A moment later the member
 * is not eligible itself.
 */
void gang_lowered_runs(struct gang_column *column)
{
	if (column->way_missed || !(column->gives_way ? READ_ONCE(column->bound_nr) : column->owed))
		return;
	column->way_missed = true;
	gang_poke_soon(column);
}

/* A child of a lowered member. The kernel resets SCHED_FIFO on fork, but not SCHED_IDLE. */
struct fork {
	struct llist_node node;
	struct task_struct *task;
	u32 policy;
};
static LLIST_HEAD(forks);

static void reset_forks(struct work_struct *work)
{
	struct fork *fork, *next;

	llist_for_each_entry_safe(fork, next, llist_del_all(&forks), node) {
		struct sched_attr attr = {.size = sizeof(attr), .sched_policy = fork->policy};

		attr.sched_nice = task_nice(fork->task);
		/* otherwise another program has chosen its class meanwhile */
		if (READ_ONCE(fork->task->policy) == SCHED_IDLE)
			sched_setattr_nocheck(fork->task, &attr);
		put_task_struct(fork->task);
		kfree(fork);
	}
}

static DECLARE_WORK(fork_work, reset_forks);

void gang_forked(struct gang_thread *parent, struct task_struct *child)
{
	bool own = READ_ONCE(parent->class) == GANG_CLASS_OWN;
	u32 policy = own ? READ_ONCE(parent->task->policy) : READ_ONCE(parent->policy);
	struct fork *fork;

	/* the parent's class may have been restored since its policy was copied */
	if (child->policy != SCHED_IDLE || policy == SCHED_IDLE)
		return;
	fork = kmalloc(sizeof(*fork), GFP_ATOMIC);
	if (!fork)
		return;
	fork->task = get_task_struct(child);
	fork->policy = policy;
	llist_add(&fork->node, &forks);
	schedule_work(&fork_work);
}

/* Wait until the policies of forked children are reset. No probe runs any more. */
void gang_forks_flush(void)
{
	flush_work(&fork_work);
}
