/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_LOOP_H
#define GANG_LOOP_H

#include "model/sim.h"

void loop_run(struct sim *sim);

#endif
