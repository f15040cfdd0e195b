// SPDX-License-Identifier: GPL-2.0
/*
 * A cgroup as a gang: the threads that the cgroup has now, each on a CPU of the domain that the
 * thread may use.
 */
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "cgroup.h"
#include "control.h"
#include "domain.h"

/*
 * Return a column that @task may run on and that is not in @taken, or -1. The column of the CPU
 * where @task is now comes first.
 */
static int free_column(const struct gang_dom *dom, const struct task_struct *task, u64 taken)
{
	int found = -1;
	u32 i;

	for (i = 0; i < dom->columns; i++) {
		if ((taken & (1ULL << i)) || !cpumask_test_cpu(dom->column[i].cpu, task->cpus_ptr))
			continue;
		if (task_cpu(task) == dom->column[i].cpu)
			return i;
		if (found < 0)
			found = i;
	}
	return found;
}

/*
 * Give seats to those threads of @cgroup that are bound to one CPU (@bound), or to those that are
 * not. Bound threads choose first. Return the number of seats that are given; *@others counts the
 * threads without one.
 */
static u32 seat_threads(const struct gang_dom *dom, struct cgroup *cgroup, bool bound,
			struct gang_seat *seats, u32 count, u64 *taken, u32 *others)
{
	struct task_struct *process, *task;
	int column;

	rcu_read_lock();
	for_each_process_thread(process, task) {
		if ((task->flags & (PF_KTHREAD | PF_EXITING)) ||
		    (task->nr_cpus_allowed == 1) != bound ||
		    !task_under_cgroup_hierarchy(task, cgroup))
			continue;
		column = free_column(dom, task, *taken);
		if (column < 0) {
			++*others;
			continue;
		}
		get_task_struct(task);
		*taken |= 1ULL << column;
		seats[count].task = task;
		seats[count++].column = column;
	}
	rcu_read_unlock();
	return count;
}

int gang_set_cgroup(const void *owner, u32 number, u32 domain, u32 weight, struct cgroup *cgroup,
		    u32 *seated, u32 *others)
{
	struct gang_dom *dom = gang_domain_find(domain);
	struct gang_seat *seats;
	u64 taken = 0;
	u32 count;
	int error;

	*others = 0;
	if (!dom || !gang_domain_owned(domain, owner))
		return -EINVAL;
	seats = kcalloc(GANG_CACHE_CPUS, sizeof(*seats), GFP_KERNEL);
	if (!seats)
		return -ENOMEM;
	count = seat_threads(dom, cgroup, true, seats, 0, &taken, others);
	count = seat_threads(dom, cgroup, false, seats, count, &taken, others);
	*seated = count;
	error = count ? gang_set(owner, number, domain, weight, GANG_MODE_RELAXED, seats, count) :
			-ESRCH;
	kfree(seats);
	return error;
}
