/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_DSQ_H
#define GANG_DSQ_H

#include "model/sim.h"

struct sim_dsq *dsq_find(struct sim *sim, u64 id);
int dsq_create(struct sim *sim, u64 id);
void dsq_free(struct sim *sim);
struct sim_dsq *dsq_target(struct sim *sim, u64 id, u32 cpu);
void dsq_add(struct sim *sim, struct sim_dsq *dsq, struct sim_task *task, u64 flags);
void dsq_remove(struct sim_task *task);
void dsq_enqueue_local(struct sim *sim, u32 cpu, struct sim_task *task, u64 flags);
int dsq_consume(struct sim *sim, struct sim_dsq *dsq, u32 cpu);

#endif
