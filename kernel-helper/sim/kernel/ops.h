/* SPDX-License-Identifier: Apache-2.0 */
/* How the model calls a scheduler. */
#ifndef GANG_OPS_H
#define GANG_OPS_H

#include "kernel/object.h"

/* As the kernel does for a program: the current task, which is returned, may not migrate meanwhile.
 */
static inline struct task_struct *op_begin(struct sim *sim)
{
	struct sim_task *task = sim->cpus[sim->event.cpu].current;
	struct task_struct *current = task ? &task->p : NULL;

	if (current)
		current->migration_disabled++;
	object_begin(sim);
	return current;
}

static inline void op_end(struct sim *sim, struct task_struct *current, u64 ns)
{
	object_end(sim, ns);
	if (current)
		current->migration_disabled--;
}

/* A call at a price: if the scheduler has the op. */
#define OP_AT(sim, ns, name, args...)                                                              \
	do {                                                                                       \
		if ((sim)->ops->name) {                                                            \
			struct task_struct *___current = op_begin(sim);                            \
			(sim)->ops->name(args);                                                    \
			op_end(sim, ___current, ns);                                               \
		}                                                                                  \
	} while (0)
#define OP(sim, name, args...) OP_AT(sim, (sim)->config->op_ns, name, ##args)

/* Likewise, of one that it has. */
#define OP_RET(sim, ns, name, args...)                                                             \
	({                                                                                         \
		typeof((sim)->ops->name(args)) ___ret;                                             \
		struct task_struct *___current = op_begin(sim);                                    \
		___ret = (sim)->ops->name(args);                                                   \
		op_end(sim, ___current, ns);                                                       \
		___ret;                                                                            \
	})

#endif
