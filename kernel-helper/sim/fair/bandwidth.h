/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_BANDWIDTH_H
#define GANG_BANDWIDTH_H

#include "fair/entity.h"

int cfs_help(struct sim *sim, struct sim_queue *queue);
void cfs_throttle(struct sim *sim, struct sim_queue *queue);
void cfs_refill(struct sim *sim, u32 group);

#endif
