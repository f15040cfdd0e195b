// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/gang: the ioctls of include/gang_abi.h.
 *
 * Gangs that are set up through an open file live as long as the file: its holder may be killed at
 * any moment, and the kernel then closes the file. One file at a time may set up gangs and domains.
 *
 * Any process that may open the device may read (version, stats, counters). A process that changes
 * anything needs CAP_SYS_NICE, because the module reschedules threads of others, and CAP_SYS_ADMIN,
 * because the module gives CPUs of the host away. The module copies what user space hands in once,
 * and then checks the copy.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "account.h"
#include "cgroup.h"
#include "control.h"
#include "count.h"
#include "dev.h"

static const struct file *controller; /* under gang_control */

static long claim(const struct file *file)
{
	if (!capable(CAP_SYS_NICE) || !capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (controller && controller != file)
		return -EBUSY;
	controller = file;
	return 0;
}

static bool valid_weight(u32 weight)
{
	return weight >= GANG_WEIGHT_MIN && weight <= GANG_WEIGHT_MAX;
}

static bool valid_gang(u32 gang)
{
	return gang > 0 && gang < GANG_MAX_GANGS;
}

static long get_version(void __user *user)
{
	struct gang_ioc_version args = {.version = GANG_ABI_VERSION};

	return copy_to_user(user, &args, sizeof(args)) ? -EFAULT : 0;
}

static long set_domain(const struct file *file, void __user *user)
{
	struct gang_ioc_domain args;
	long error;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.version != GANG_ABI_VERSION)
		return -EPROTO;
	if (args.domain >= GANG_MAX_CACHES || args.cpus.columns > GANG_CACHE_CPUS)
		return -EINVAL;
	error = claim(file);
	return error ? error : gang_domain_set(file, args.domain, &args.cpus);
}

/* Return a reference to thread @tid if process @tgid has it and it is user space's, or NULL. */
static struct task_struct *find_thread(u32 tid, u32 tgid)
{
	struct task_struct *task;
	struct pid *pid = find_get_pid(tid);

	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return NULL;
	if (task_tgid_vnr(task) == tgid && !(task->flags & PF_KTHREAD))
		return task;
	put_task_struct(task);
	return NULL;
}

static long seat_gang(const struct file *file, const struct gang_ioc_gang *args)
{
	struct gang_seat *seats;
	u32 i;
	long error = 0;

	seats = kcalloc(GANG_CACHE_CPUS, sizeof(*seats), GFP_KERNEL);
	if (!seats)
		return -ENOMEM;
	for (i = 0; i < args->seats; i++) {
		seats[i].column = args->seat[i].column;
		seats[i].task = find_thread(args->seat[i].tid, args->tgid);
		if (!seats[i].task) {
			error = -ESRCH;
			break;
		}
	}
	if (!error)
		error = gang_set(file, args->gang, args->domain, args->weight, args->mode, seats,
				 args->seats);
	else
		while (i--)
			put_task_struct(seats[i].task);
	kfree(seats);
	return error;
}

static long set_gang(const struct file *file, void __user *user)
{
	struct gang_ioc_gang *args = memdup_user(user, sizeof(*args));
	long error = -EINVAL;

	if (IS_ERR(args))
		return PTR_ERR(args);
	if (args->version != GANG_ABI_VERSION)
		error = -EPROTO;
	else if (valid_gang(args->gang) && args->mode <= GANG_MODE_STRICT && !args->pad &&
		 args->seats <= GANG_CACHE_CPUS) {
		error = claim(file);
		if (!error && args->mode == GANG_MODE_OFF)
			error = gang_drop(file, args->gang);
		else if (!error)
			error = valid_weight(args->weight) ? seat_gang(file, args) : -EINVAL;
	}
	kfree(args);
	return error;
}

static long set_cgroup(const struct file *file, void __user *user)
{
	struct gang_ioc_cgroup args;
	struct cgroup *cgroup;
	long error;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.version != GANG_ABI_VERSION)
		return -EPROTO;
	if (!valid_gang(args.gang) || !valid_weight(args.weight) || args.pad)
		return -EINVAL;
	error = claim(file);
	if (error)
		return error;
	cgroup = cgroup_get_from_fd(args.fd);
	if (IS_ERR(cgroup))
		return PTR_ERR(cgroup);
	error = gang_set_cgroup(file, args.gang, args.domain, args.weight, cgroup, &args.seats,
				&args.others);
	cgroup_put(cgroup);
	if (!error && copy_to_user(user, &args, sizeof(args))) {
		gang_drop(file, args.gang);
		error = -EFAULT;
	}
	return error;
}

static long get_stats(void __user *user)
{
	struct gang_ioc_stats args;
	unsigned long flags;
	struct gang *gang;
	u32 i;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.version != GANG_ABI_VERSION)
		return -EPROTO;
	gang = valid_gang(args.gang) ? gang_find(args.gang) : NULL;
	if (!gang)
		return -ENOENT;
	raw_spin_lock_irqsave(&gang->dom->lock, flags);
	args.stats = gang->stats;
	for (i = 0; i < GANG_CACHE_CPUS; i++)
		if (gang->thread[i])
			gang_add_thread_stats(&args.stats, gang->thread[i]);
	raw_spin_unlock_irqrestore(&gang->dom->lock, flags);
	return copy_to_user(user, &args, sizeof(args)) ? -EFAULT : 0;
}

static long get_counters(void __user *user)
{
	struct gang_ioc_counters args;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.version != GANG_ABI_VERSION)
		return -EPROTO;
	args.pad = 0;
	args.slots = gang_counted(GANG_COUNT_SLOTS);
	args.other_slots = gang_counted(GANG_COUNT_OTHER_SLOTS);
	args.gaps = gang_counted(GANG_COUNT_GAPS);
	args.kicks = gang_counted(GANG_COUNT_KICKS);
	args.boosts = gang_counted(GANG_COUNT_BOOSTS);
	args.unboosts = gang_counted(GANG_COUNT_UNBOOSTS);
	args.exits = gang_counted(GANG_COUNT_EXITS);
	args.ways = gang_counted(GANG_COUNT_WAYS);
	gang_totals(&args.gangs, &args.members);
	return copy_to_user(user, &args, sizeof(args)) ? -EFAULT : 0;
}

static long ask(const struct file *file, unsigned int command, void __user *user)
{
	switch (command) {
	case GANG_IOC_VERSION:
		return get_version(user);
	case GANG_IOC_SET_DOMAIN:
		return set_domain(file, user);
	case GANG_IOC_SET_GANG:
		return set_gang(file, user);
	case GANG_IOC_SET_CGROUP:
		return set_cgroup(file, user);
	case GANG_IOC_STATS:
		return get_stats(user);
	case GANG_IOC_COUNTERS:
		return get_counters(user);
	default:
		return -ENOTTY;
	}
}

static long gang_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	long result;

	if (mutex_lock_killable(&gang_control))
		return -EINTR;
	result = ask(file, command, (void __user *)argument);
	mutex_unlock(&gang_control);
	return result;
}

static int gang_release(struct inode *inode, struct file *file)
{
	mutex_lock(&gang_control);
	gang_drop_all(file);
	if (controller == file)
		controller = NULL;
	mutex_unlock(&gang_control);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = gang_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = gang_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gang",
	.fops = &operations,
	.mode = 0600,
};

int gang_dev_init(void)
{
	return misc_register(&device);
}

void gang_dev_exit(void)
{
	misc_deregister(&device);
}
