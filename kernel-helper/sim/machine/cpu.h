/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_CPU_H
#define GANG_CPU_H

#include "model/sim.h"

void cpu_waiting(struct sim *sim, u32 cpu, int change);
void cpu_together(struct sim *sim, struct sim_guest *guest);
void cpu_join(struct sim *sim, u32 cpu);
void cpu_leave(struct sim *sim, u32 cpu);
void cpu_switch(struct sim *sim, u32 cpu, struct sim_task *next);
void cpu_pause(struct sim *sim, u32 cpu);
u64 cpu_tick_from(const struct sim *sim, u32 cpu, u64 from);
void cpu_finish(struct sim *sim);

#endif
