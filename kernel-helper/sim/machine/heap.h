/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_HEAP_H
#define GANG_HEAP_H

#include "model/sim.h"

int heap_init(struct sim_heap *heap, u32 events);
void heap_free(struct sim_heap *heap);
void heap_set(struct sim_heap *heap, u32 event, u64 when);
u32 heap_pop(struct sim_heap *heap, u64 *when);

#endif
