/* SPDX-License-Identifier: Apache-2.0 */
/* How the model calls a scheduler. */
#ifndef GANG_OPS_H
#define GANG_OPS_H

#include "kernel/object.h"

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

#endif
