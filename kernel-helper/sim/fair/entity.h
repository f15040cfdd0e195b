/* SPDX-License-Identifier: Apache-2.0 */
/* EEVDF's own state: entities, the queues of groups on CPUs, and what groups share. */
#ifndef GANG_ENTITY_H
#define GANG_ENTITY_H

#include "model/sim.h"

#define ONE (1LL << 20) /* NICE_0_LOAD */

typedef __int128 s128;

struct sim_queue;

/* A task, or on one CPU a group, in the queue of the group above. */
struct sim_entity {
	struct sim_queue *queue; /* that it is in or was in last */
	struct sim_queue *own;	 /* of a group: its queue on this CPU */
	struct sim_task *task;
	u64 weight;   /* 1 << 20 is nice 0 */
	s64 vruntime; /* virtual times are relative to nothing */
	s64 deadline;
	s64 protected; /* it goes on until then if it is eligible */
	s64 lag;
	u32 on;
	u32 delayed; /* it sleeps, but is in the queue until it would be picked */
	u32 idle;    /* SCHED_IDLE or cpu.idle */
	u32 mark;
};

/* The queue of a group on one CPU. */
struct sim_queue {
	struct sim_entity entity; /* in the queue above; the root has none */
	struct sim_entity **list; /* who runs is in it */
	struct sim_entity *current, *buddy;
	u64 load;    /* weights added up */
	s64 clock;   /* mean virtual time, last known */
	s64 runtime; /* cpu.max: what it has left of its last helping */
	u32 nr, room;
	u32 group, cpu;
	u32 throttled;
	struct sim_queue *chain; /* of its hash bucket */
};

struct sim_share {
	u64 load; /* of all queues of a group */
	u64 pool; /* cpu.max: left for this period */
	s64 lag;  /* of its entity that was in use last, and where that was */
	u32 lag_cpu;
	u32 timer; /* its period's; 0: it has no limit */
};

#define CFS_BUCKETS 65536

struct sim_fair {
	struct sim_queue *queues[CFS_BUCKETS];
	struct sim_queue *roots[SIM_CPUS];
	struct sim_queue *unused;
	u64 slice; /* ns, of all entities */
	struct sim_share *shares;
	u64 overloaded[SIM_WORDS];
	struct sim_task *first[SIM_CPUS]; /* runnable tasks of a CPU, by next and prev */
	u32 limited[SIM_TIMERS];	  /* by timer: the group */
};

static inline struct sim_entity *cfs_above(const struct sim_entity *entity)
{
	return entity->queue->group ? &entity->queue->entity : NULL;
}

static inline int cfs_eligible(const struct sim_entity *entity, s64 clock)
{
	return entity->vruntime - clock <= 0;
}

#endif
