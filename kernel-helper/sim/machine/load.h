/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_LOAD_H
#define GANG_LOAD_H

#include "model/sim.h"

void load_init(struct sim *sim, struct sim_guest *guest);
void load_advance(struct sim *sim, struct sim_guest *guest);
u64 load_until_spin(struct sim *sim, const struct sim_task *task);
void load_finish(struct sim *sim, struct sim_guest *guest);

#endif
