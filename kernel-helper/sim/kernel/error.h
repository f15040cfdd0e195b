/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_ERROR_H
#define GANG_ERROR_H

#include "model/sim.h"

void ext_error(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
