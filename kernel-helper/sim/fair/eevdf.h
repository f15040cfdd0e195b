/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_FAIR_EEVDF_H
#define GANG_FAIR_EEVDF_H

#include "fair/entity.h"

void cfs_update(struct sim *sim, u32 cpu);
void cfs_tick(struct sim *sim, u32 cpu);
void cfs_enqueue(struct sim *sim, struct sim_task *task, int initial);
void cfs_dequeue(struct sim *sim, struct sim_task *task, int sleeps);
struct sim_task *cfs_pick(struct sim *sim, u32 cpu);
void cfs_set_next(struct sim_task *prev, struct sim_task *next);
u64 cfs_left(struct sim *sim, u32 cpu);
int cfs_preempts(const struct sim_task *task, const struct sim_task *current);
int cfs_may_run(const struct sim_task *task);
void cfs_favour(struct sim *sim, struct sim_task *from, struct sim_task *to);

#endif
