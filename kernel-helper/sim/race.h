/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs that meet inside the scheduler (race.c); without a race all of this does nothing. */
#ifndef GANG_RACE_H
#define GANG_RACE_H

#include "sim.h"

int race_start(struct sim *sim);
void race_stop(struct sim *sim);
void race_event(struct sim *sim, u32 event, u32 cpu);
int race_resume(struct sim *sim, u64 next);
void race_lock(struct sim *sim, u32 cpu);
void race_unlock(struct sim *sim, u32 cpu);
u32 race_drop(struct sim *sim);
void race_take_back(struct sim *sim, u32 count);

#endif
