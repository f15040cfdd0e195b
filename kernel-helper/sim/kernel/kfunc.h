/* SPDX-License-Identifier: Apache-2.0 */
/* All functions that a program may call share these. */
#ifndef GANG_KFUNC_H
#define GANG_KFUNC_H

#include "kernel/object.h"
#include "kernel/scx.h"

#define s32  int
#define bool _Bool

static inline struct sim_task *task_of(const struct task_struct *p)
{
	return (struct sim_task *)p;
}

/* A call that only looks, and one that takes a lock. */
static inline struct sim *look(void)
{
	price(sim_current->config->call_ns);
	return sim_current;
}

static inline struct sim *lock(void)
{
	price(sim_current->config->queue_ns);
	return sim_current;
}

#endif
