/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_EXT_H
#define GANG_EXT_H

#include "model/sim.h"

extern const struct sim_class ext_class;

void ext_insert(struct sim *sim, struct sim_task *task, u64 id, u64 flags, u32 cpu);
void ext_reenqueue(struct sim *sim, struct sim_task *task);
void ext_rearm(struct sim *sim, struct sim_task *task);
void ext_flush(struct sim *sim, u32 cpu);

#endif
