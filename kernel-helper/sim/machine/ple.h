/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_PLE_H
#define GANG_PLE_H

#include "model/sim.h"

sim_mask ple_waiting(const struct sim_guest *guest);
void ple_arm_one(struct sim *sim, struct sim_task *task);
void ple_arm(struct sim *sim, struct sim_task *task);

#endif
