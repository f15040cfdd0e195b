/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_TIMER_H
#define GANG_TIMER_H

#include "model/sim.h"

u32 timer_cpu(const struct sim *sim, u32 which);
void timer_fire(struct sim *sim, u32 which);
void timer_free(struct sim *sim);

#endif
