/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_LINE_H
#define GANG_LINE_H

#include "model/sim.h"

/* CPUs that write to the same cache lines wait for these. */
int line_start(struct sim *sim);
void line_touch(struct sim *sim, const volatile void *at, int writes);
void line_stop(struct sim *sim);

#endif
