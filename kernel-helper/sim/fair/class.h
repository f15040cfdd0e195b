/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_FAIR_CLASS_H
#define GANG_FAIR_CLASS_H

#include "model/sim.h"

extern const struct sim_class fair_class; /* CPUs without gangs: EEVDF, pinned or balanced or not */

#endif
