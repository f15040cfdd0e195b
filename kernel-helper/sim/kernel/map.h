/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_MAP_H
#define GANG_MAP_H

#include "model/sim.h"

const void *map_key(void *map, const void *value, u32 *index);
void map_free(struct sim *sim);
void storage_free(void **storage);

#endif
