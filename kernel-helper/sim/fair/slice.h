/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_SLICE_H
#define GANG_SLICE_H

#include "model/sim.h"

u64 slice_of_host(const struct sim_config *config);
u64 slice_most_lag(u64 slice, u64 tick);

#endif
