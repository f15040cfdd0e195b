// SPDX-License-Identifier: GPL-2.0
/*
 * The checks that a module built with GANG_DEBUG=1 makes before it loads, on the kernel that loads
 * it: matrix.h, compiled for this kernel, picks rows as it should; a thread that the module raises
 * and puts back is what it was; the weights that share.c reads are those of the fair class.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <uapi/linux/sched/types.h>

#include "boost.h"
#include "selftest.h"
#include "share.h"

#define EXPECT(true)                                                                               \
	do {                                                                                       \
		if (!(true)) {                                                                     \
			pr_err("self-test failed, line %d: %s\n", __LINE__, #true);                \
			return -EIO;                                                               \
		}                                                                                  \
	} while (0)

/*
 * Check that two gangs on the same two CPUs take turns, and that a third gang on another CPU shares
 * the row.
 */
static int check_rows(struct gang_slot *slot, struct gang_state *state)
{
	u64 now = 1000000, rank;
	u16 first, second;
	u32 i;

	slot->length = 1000;
	slot->gangs = 3;
	for (i = 1; i <= 3; i++) {
		slot->list[i - 1] = i;
		state[i].columns = i < 3 ? 3 : 4;
		state[i].ready = state[i].columns;
		state[i].weight = GANG_WEIGHT_DEFAULT;
		state[i].mode = GANG_MODE_RELAXED;
		state[i].last_slot = now;
	}
	first = gang_fill_row(slot, state, 0, 1, 0, now);
	EXPECT(first == 1 || first == 2);
	slot->word = gang_word(1, now + 2048);
	EXPECT(gang_owner(slot, slot->word, 0) == first &&
	       gang_owner(slot, slot->word, 1) == first);
	EXPECT(gang_owner(slot, slot->word, 2) == 3);
	EXPECT(!gang_slot_over(slot->word, now) && gang_slot_over(slot->word, now + 2048));
	gang_note_used(&state[first], 2000);
	gang_pay(&state[first]);
	second = gang_fill_row(slot, state, 0, 2, 0, now);
	EXPECT(second == 3 - first);
	state[1].ready = state[2].ready = state[3].ready = 0;
	EXPECT(!gang_next(slot, state, 0, 0, now, &rank));
	return 0;
}

static int idle_thread(void *data)
{
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ);
	return 0;
}

static int check_boost(struct gang_column *column, struct task_struct *task)
{
	struct gang_thread thread = {.task = task};
	struct sched_attr batch = {
		.size = sizeof(batch), .sched_policy = SCHED_BATCH, .sched_nice = 7};

	EXPECT(!sched_setattr_nocheck(task, &batch));
	EXPECT(gang_boost(column, &thread));
	EXPECT(task->policy == SCHED_FIFO && task->rt_priority == 1 && task->sched_reset_on_fork);
	EXPECT(!gang_boost(column, &(struct gang_thread){.task = task}));
	gang_unboost(column, &thread);
	EXPECT(task->policy == SCHED_BATCH && task_nice(task) == 7 && !task->sched_reset_on_fork);
	EXPECT(!column->boosted);
	return 0;
}

static int boosted_and_back(void)
{
	struct gang_dom *dom = kvzalloc(struct_size(dom, column, 1), GFP_KERNEL);
	struct task_struct *task;
	int error = -ENOMEM;

	if (!dom)
		return error;
	raw_spin_lock_init(&dom->lock);
	dom->column[0].dom = dom;
	rt_mutex_init(&dom->column[0].mutex);
	task = kthread_run(idle_thread, NULL, "gang/test");
	if (!IS_ERR(task)) {
		error = check_boost(&dom->column[0], task);
		kthread_stop(task);
	}
	kvfree(dom);
	return error;
}

static int spin_thread(void *data)
{
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

/* Check that two threads that spin on one CPU have equal shares of it, and no more than half. */
static int check_shares(struct task_struct *const *task)
{
	u32 first = gang_fair_share(task[0]), second = gang_fair_share(task[1]);

	EXPECT(first == second && first > GANG_SHARE_ONE / 16 && first <= GANG_SHARE_ONE / 2);
	return 0;
}

static int halves(void)
{
	struct task_struct *task[2];
	int i, error = 0;

	for (i = 0; i < 2; i++) {
		task[i] = kthread_run_on_cpu(spin_thread, NULL, 0, "gang/test");
		error = PTR_ERR_OR_ZERO(task[i]);
		if (error)
			break;
	}
	msleep(20);
	if (!error)
		error = check_shares(task);
	while (i--)
		kthread_stop(task[i]);
	return error;
}

int gang_selftest(void)
{
	struct gang_state *state = kcalloc(4, sizeof(*state), GFP_KERNEL);
	struct gang_slot *slot = kzalloc(sizeof(*slot), GFP_KERNEL);
	int error = -ENOMEM;

	if (state && slot)
		error = check_rows(slot, state);
	kfree(state);
	kfree(slot);
	if (!error)
		error = boosted_and_back();
	if (!error)
		error = halves();
	if (!error)
		pr_info("self-test passed\n");
	return error;
}
