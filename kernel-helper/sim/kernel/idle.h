/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_IDLE_H
#define GANG_IDLE_H

#include "model/sim.h"

void idle_note(struct sim *sim, u32 cpu, int idle);
int idle_claim(struct sim *sim, u32 cpu);
int idle_pick(struct sim *sim, const unsigned long *allowed, int core);
int idle_near(struct sim *sim, struct sim_task *task, u32 prev);
int idle_select(struct sim *sim, struct sim_task *task, u32 prev);

#endif
