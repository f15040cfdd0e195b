/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The weight of a task among its siblings, and the part of it that the task can use.
 *
 * The CPUs of a group are divided among its active children by weight. No child gets more than it
 * can use: a task one CPU, a group as many as it has runnable tasks or as its cpu.max allows. The
 * siblings of a child get what the child cannot use. Each child has an effective weight, with which
 * a plain division by weight comes out right: of R CPUs a child of weight w beside siblings of
 * weight r gets R * w / (w + r), which is its limit k if w = r * k / (R - k). Each child corrects
 * its own effective weight from time to time; the weights come to rest where all divisions are
 * max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2).
 */
#ifndef FAIR_WEIGHT_H
#define FAIR_WEIGHT_H

#include "clock.h"

#define FAIR_CPU (1ULL << 20) /* the rate of one CPU */

/* include/linux/sched/prio.h and kernel/sched/core.c: by nice + 20; nice 0 weighs 1024 */
static const __u32 fair_nice_weights[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
	1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
	110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
};
#define FAIR_IDLE_WEIGHT (3 * (FAIR_ONE / 1024)) /* SCHED_IDLE and cpu.idle: WEIGHT_IDLEPRIO */

static inline __u32 fair_nice_weight(__u32 nice)
{
	return nice < 40 ? fair_nice_weights[nice] * (__u32)(FAIR_ONE / 1024) : (__u32)FAIR_ONE;
}

/*
 * Return the effective weight of a child of @weight that can use @limit of the @rate CPUs of its
 * group; the effective weights of its siblings add up to @rest. The caller asks while a task waits:
 * otherwise all limits add up to less than there is, and no weights divide it.
 */
static inline __u64 fair_effective(__u64 weight, __u64 rest, __u64 limit, __u64 rate)
{
	__u64 most, least = (weight >> 12) + 1;

	if (!rest || limit >= rate)
		return weight;
	most = rest * limit / (rate - limit);
	if (most < least)
		most = least;
	return weight < most ? weight : most;
}

#endif /* FAIR_WEIGHT_H */
