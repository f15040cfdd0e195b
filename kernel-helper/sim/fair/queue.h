/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_QUEUE_H
#define GANG_QUEUE_H

#include "fair/entity.h"

/* Why an entity leaves its queue: whether it, and groups that are empty then, may be delayed. */
enum cfs_leave {
	CFS_THROTTLED, /* none may */
	CFS_MOVES,     /* the groups may; a task that exits leaves as one that moves does */
	CFS_SLEEPS,    /* it may, too */
};

struct sim_queue *cfs_find(struct sim *sim, u32 group, u32 cpu);
struct sim_queue *cfs_queue(struct sim *sim, u32 group, u32 cpu);
s64 cfs_virtual(u64 ns, const struct sim_entity *entity);
s64 cfs_slice(const struct sim *sim, const struct sim_entity *entity);
s64 cfs_mean(struct sim_queue *queue);
u64 cfs_share(struct sim *sim, const struct sim_queue *queue);
void cfs_reweight(struct sim *sim, struct sim_entity *entity, u64 weight);
void cfs_climb(struct sim *sim, struct sim_queue *queue, struct sim_entity *entity, int initial);
void cfs_descend(struct sim *sim, struct sim_entity *entity, enum cfs_leave how);
void cfs_free(struct sim *sim);

#endif
