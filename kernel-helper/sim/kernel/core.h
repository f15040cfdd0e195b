/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_CORE_H
#define GANG_CORE_H

#include "model/sim.h"

void core_resched(struct sim *sim, u32 cpu);
void core_schedule(struct sim *sim, u32 cpu, int blocks);
void core_tick(struct sim *sim, u32 cpu);
void core_switched(struct sim *sim, u32 cpu);
void core_kicked(struct sim *sim, u32 cpu);
void core_activate(struct sim *sim, struct sim_task *task, u64 flags);
void core_wake(struct sim *sim, struct sim_task *task);
void core_done(struct sim *sim, struct sim_task *task);
void core_spin(struct sim *sim, struct sim_task *task);

#endif
