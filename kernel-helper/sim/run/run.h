/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_RUN_H
#define GANG_RUN_H

#include "model/sim.h"

int sim_run(const struct sim_description *description, const struct sim_answer *answer,
	    const char *object);

#endif
