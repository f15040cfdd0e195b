/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_RACE_H
#define GANG_RACE_H

#include "model/sim.h"

/* CPUs that meet inside the scheduler; without a race all of this does nothing. */
typedef void (*race_handler)(struct sim *sim, u32 event);

void race_event(struct sim *sim, u32 event, u32 cpu, race_handler happen);
int race_resume(struct sim *sim, u64 next);
void race_lock(struct sim *sim, u32 cpu);
void race_unlock(struct sim *sim, u32 cpu);
u32 race_drop(struct sim *sim);
void race_take_back(struct sim *sim, u32 count);
int race_start(struct sim *sim);
void race_stop(struct sim *sim);

#endif
