/* SPDX-License-Identifier: Apache-2.0 */
/* How the model calls a scheduler, for ext.c and enable.c. */
#ifndef GANG_EXT_H
#define GANG_EXT_H

#include "sim.h"

/* A call at a price: if the scheduler has the op. */
#define OP_AT(sim, ns, name, args...)                                                              \
	do {                                                                                       \
		if ((sim)->ops->name) {                                                            \
			object_begin(sim);                                                         \
			(sim)->ops->name(args);                                                    \
			object_end(sim, ns);                                                       \
		}                                                                                  \
	} while (0)
#define OP(sim, name, args...) OP_AT(sim, (sim)->config->op_ns, name, ##args)

/* Likewise, of one that it has. */
#define OP_RET(sim, ns, name, args...)                                                             \
	({                                                                                         \
		typeof((sim)->ops->name(args)) ___ret;                                             \
		object_begin(sim);                                                                 \
		___ret = (sim)->ops->name(args);                                                   \
		object_end(sim, ns);                                                               \
		___ret;                                                                            \
	})

void ext_init_task(struct sim *sim, struct sim_task *task, int fork);
void ext_exit_task(struct sim *sim, struct sim_task *task);
void ext_watch(struct sim *sim);
void ext_reorder(struct sim *sim);
void ext_start(struct sim *sim);
void ext_finish(struct sim *sim);

#endif
