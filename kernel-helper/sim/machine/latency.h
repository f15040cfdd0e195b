/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_LATENCY_H
#define GANG_LATENCY_H

#include "model/sim.h"

void latency_note(struct sim *sim, struct sim_task *task);
u64 latency_percentile(const struct sim_task *task, u64 share);

#endif
