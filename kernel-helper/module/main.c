// SPDX-License-Identifier: GPL-2.0
/*
 * gang.ko: gang scheduling beside the default scheduler, for kernels without sched_ext.
 *
 * The idea is that of the gang scheduling RFC of 2011 (Nikunj A Dadhania, LKML): the CPU that picks
 * a thread of a gang leads, and sends an interrupt to the CPUs of its siblings, which then favour
 * their own member. A module cannot change which thread the fair class picks. It can watch the
 * choice (tracepoint sched_switch), and raise a thread to a real-time class for the length of a
 * slot. The module uses only exported symbols.
 *
 * While there is no gang, the module hooks no tracepoint and runs no timer. README.md draws the
 * layers.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>

#include "compat.h"
#include "control.h"
#include "dev.h"
#include "selftest.h"
#include "sysfs.h"
#include "watch.h"
#include "yield.h"

/* Refuse kernels on which a boost would do harm. */
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
	int error;

	error = refused();
	if (error)
		return error;
	error = gang_watch_init();
	if (error)
		return error;
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
	gang_control_flush();
	gang_forks_flush();
	rcu_barrier();
}

module_init(gang_init);
module_exit(gang_exit);
MODULE_DESCRIPTION(GANG_DESCRIPTION);
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
