/* SPDX-License-Identifier: Apache-2.0 */
/* How the model calls a scheduler. */
#ifndef GANG_OPS_H
#define GANG_OPS_H

#include "kernel/object.h"
#include "kernel/scx.h"

/* As the kernel does for a program: the current task, which is returned, may not migrate meanwhile.
 */
static inline struct task_struct *op_begin(struct sim *sim, u32 kf_mask)
{
	struct sim_task *task = sim->cpus[sim->event.cpu].current;
	struct task_struct *current = task ? &task->p : NULL;

	if (current)
		current->migration_disabled++;
	sim->event.kf_mask |= kf_mask;
	object_begin(sim);
	return current;
}

static inline void op_end(struct sim *sim, struct task_struct *current, u32 kf_mask, u64 ns)
{
	object_end(sim, ns);
	sim->event.kf_mask &= ~kf_mask;
	if (current)
		current->migration_disabled--;
}

/* A call at a price, which may call kfuncs of @kf: if the scheduler has the op. */
#define OP_KF(sim, kf, ns, name, args...)                                                          \
	do {                                                                                       \
		if ((sim)->ops->name) {                                                            \
			struct task_struct *___current = op_begin(sim, kf);                        \
			(sim)->ops->name(args);                                                    \
			op_end(sim, ___current, kf, ns);                                           \
		}                                                                                  \
	} while (0)
#define OP_AT(sim, ns, name, args...) OP_KF(sim, SCX_KF_REST, ns, name, ##args)
#define OP(sim, name, args...)	      OP_AT(sim, (sim)->config->op_ns, name, ##args)

/* Likewise, of one that it has. */
#define OP_RET_KF(sim, kf, ns, name, args...)                                                      \
	({                                                                                         \
		typeof((sim)->ops->name(args)) ___ret;                                             \
		struct task_struct *___current = op_begin(sim, kf);                                \
		___ret = (sim)->ops->name(args);                                                   \
		op_end(sim, ___current, kf, ns);                                                   \
		___ret;                                                                            \
	})
#define OP_RET(sim, ns, name, args...) OP_RET_KF(sim, SCX_KF_REST, ns, name, ##args)

#endif
