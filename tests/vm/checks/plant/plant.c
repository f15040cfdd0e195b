// SPDX-License-Identifier: GPL-2.0
/*
 * Mistakes made on purpose, to show that the debug kernel and those who read its
 * log notice them: insmod plant.ko what=leak|sleep|lock|access. In this order: lockdep
 * switches itself off with its first report, and with the first of KASAN.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *what = "";
module_param(what, charp, 0);
MODULE_PARM_DESC(what, "the mistake to make: leak, sleep, lock or access");

static DEFINE_SPINLOCK(outer);
static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

/* sixteen objects: a stale pointer on some stack may still point to one of them */
static void leak(void)
{
	for (int i = 0; i < 16; i++) {
		void *lost = kmalloc(4096, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(lost);
	}
}

static void access(void)
{
	char *object = kmalloc(24, GFP_KERNEL);

	if (!object)
		return;
	OPTIMIZER_HIDE_VAR(object);
	WRITE_ONCE(object[24], 1);
	kfree(object);
}

static void sleep_while_atomic(void)
{
	spin_lock(&outer);
	might_sleep();
	spin_unlock(&outer);
}

static void lock_in_both_orders(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);

	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static int __init plant_init(void)
{
	if (!strcmp(what, "leak"))
		leak();
	else if (!strcmp(what, "access"))
		access();
	else if (!strcmp(what, "sleep"))
		sleep_while_atomic();
	else if (!strcmp(what, "lock"))
		lock_in_both_orders();
	else
		return -EINVAL;
	return 0;
}

static void __exit plant_exit(void)
{
}

module_init(plant_init);
module_exit(plant_exit);
MODULE_DESCRIPTION("Mistakes for the lab's debug kernel to notice");
MODULE_LICENSE("GPL");
