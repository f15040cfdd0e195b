/* SPDX-License-Identifier: GPL-2.0 */
/* All differences between the kernels that the module is built for: Debian's 6.1 to 7.2. */
#ifndef GANG_COMPAT_H
#define GANG_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/version.h>

#ifndef CONFIG_64BIT
#error "gang.ko keeps one bit a column in an unsigned long: it needs a 64-bit kernel"
#endif

#ifndef CONFIG_FAIR_GROUP_SCHED
#error "gang.ko reads who waits from the queues of groups: it needs FAIR_GROUP_SCHED"
#endif

/* v6.13: hrtimer_setup() replaces hrtimer_init() and setting the function by hand */
static inline void gang_timer_setup(struct hrtimer *timer,
				    enum hrtimer_restart (*function)(struct hrtimer *))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_HARD);
	timer->function = function;
#endif
}

/* v6.12: a thread of the fair class may ask for a slice of its own; 0: this thread has not */
static inline u64 gang_own_slice(const struct task_struct *task)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return task->se.custom_slice ? task->se.slice : 0;
#else
	return 0;
#endif
}

/*
 * Return the weight of all entities that run or wait in the queue of @entity. struct cfs_rq is the
 * scheduler's own (kernel/sched/sched.h), but it begins with its load from v4.15 to v7.2; the
 * self-test of a debug build fails on a kernel where it does not.
 */
static inline unsigned long gang_queue_weight(const struct sched_entity *entity)
{
	const struct load_weight *load = (const struct load_weight *)READ_ONCE(entity->cfs_rq);

	return READ_ONCE(load->weight);
}

/* v6.10: modpost warns of a module that does not describe itself */
#define GANG_DESCRIPTION "gang scheduling of KVM guests beside the default scheduler"

#endif /* GANG_COMPAT_H */
