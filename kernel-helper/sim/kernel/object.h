/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_OBJECT_H
#define GANG_OBJECT_H

#include "model/sim.h"

void price(u64 ns);
void object_begin(struct sim *sim);
void object_end(struct sim *sim, u64 base);
int object_load(struct sim *sim, const char *path);
int object_order(struct sim *sim);
int object_reorder(struct sim *sim);
void object_collect(struct sim *sim);
void object_unload(struct sim *sim);

#endif
