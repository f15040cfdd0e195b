// SPDX-License-Identifier: GPL-2.0
/*
 * The registry finds the member behind a task, and the column behind a CPU. The probes look members
 * and columns up, under RCU; control.c and domain.c add them and take them away.
 */
#include <linux/hashtable.h>
#include <linux/percpu.h>

#include "registry.h"

static DEFINE_HASHTABLE(threads, 9);
static DEFINE_SPINLOCK(threads_lock);
static DEFINE_PER_CPU(struct gang_column *, column_here);

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

/*
 * Return the member that @task is, or NULL. The caller has interrupts off or holds rcu_read_lock().
 */
struct gang_thread *gang_thread_of(struct task_struct *task)
{
	struct gang_thread *thread;

	hash_for_each_possible_rcu(threads, thread, node, (unsigned long)task)
		if (thread->task == task)
			return thread;
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
