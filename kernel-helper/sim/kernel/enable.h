/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_ENABLE_H
#define GANG_ENABLE_H

#include "model/sim.h"

void ext_init_task(struct sim *sim, struct sim_task *task, int fork);
void ext_exit_task(struct sim *sim, struct sim_task *task);
void ext_watch(struct sim *sim);
void ext_reorder(struct sim *sim);
void ext_start(struct sim *sim);
void ext_finish(struct sim *sim);

#endif
