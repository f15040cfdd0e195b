/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Turns: when the vCPUs of a guest run together. Fairness decides which task is next and which task
 * pays; a turn only moves the time of the siblings to the same moment.
 *
 *   cpu 0   A A A A A A A A|B B B B B B B B|A A A
 *   cpu 1   A A A A A A A A|B B o B B B B B|A A A     o: a task that runs for a moment
 *   cpu 2   h h h h A A A A|h h h h h h h h|h h A     h: an ordinary task that is owed the CPU
 *           edge           edge            edge
 *
 * Turns end at the edges of a grid that all caches share, so that room for wide gangs appears at
 * one moment. In a crowd the grid is finer, and its edges nest.
 */
#ifndef GANG_TURN_H
#define GANG_TURN_H

#include "clock.h"
#include "request.h"

#define TURN_MOST	  (12 * FAIR_MSEC)
#define TURN_CROWD	  6		   /* tasks a CPU from which on turns are halved */
#define TURN_BORROW	  TURN_MOST	   /* a sibling's lead over a member that gives way */
#define TURN_BORROW_OTHER FAIR_MSEC	   /* a sibling's lead over another task that does */
#define TURN_LENT	  (6 * FAIR_MSEC)  /* the longest turn on CPUs that a gang is not owed */
#define TURN_LENT_EVERY	  (24 * TURN_LENT) /* at most one such turn begins in this time */

/* Return how long a turn of at most @most ns may last with @nr runnable tasks on @cpus CPUs. */
static inline __u64 turn_most(__u64 most, __u32 nr, __u32 cpus)
{
	__u32 crowd = nr / (cpus ? cpus : 1);

	return crowd >= 4 * TURN_CROWD ? most / 4 : crowd >= TURN_CROWD ? most / 2 : most;
}

/*
 * Return the ns from @now to the next edge of a grid of @grid ns, or to the edge after it if that
 * one is less than a quarter of the grid away.
 */
static inline __u64 turn_length(__u64 now, __u64 grid)
{
	__u64 left = grid - now % grid;

	return left < grid / 4 ? left + grid : left;
}

/*
 * Return true if a turn may take CPUs that its gang is not owed; the last such turn began at @last.
 */
static inline int turn_may_be_lent(__u64 last, __u64 now)
{
	return fair_since(last, now) >= TURN_LENT_EVERY;
}

#endif /* GANG_TURN_H */
