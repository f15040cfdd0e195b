/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The request: the CPU time that a task asks for at a time. The virtual deadline of a task is v +
 * request / w (EEVDF, Stoica and Abdel-Wahab 1995): a task with a short request runs earlier, and
 * gets no more time.
 */
#ifndef FAIR_REQUEST_H
#define FAIR_REQUEST_H

#include "clock.h"

#define FAIR_MSEC  1000000ULL
#define FAIR_SLICE (3 * FAIR_MSEC)  /* the longest request of an ordinary task */
#define FAIR_LEAST (FAIR_MSEC / 10) /* the shortest slice; a switch takes 2 to 5 us */
/* the lightest task has its request within this time */
#define FAIR_LIGHT_WAIT (3500 * FAIR_MSEC)
#define FAIR_NEVER	(1ULL << 62) /* burst of a task that never slept */

/*
 * Return the longest request of a task of weight @w among @nr runnable tasks of weight @all on
 * @cpus CPUs: @most ns, or less for a light task, which would wait for a long request for longer
 * than the watchdog allows.
 */
static inline __u64 fair_most(__u64 w, __u64 all, __u32 nr, __u32 cpus, __u64 most)
{
	__u64 light;

	if (nr < 2 || FAIR_LIGHT_WAIT * w >= most * (all + 1)) /* avoids the division below */
		return most;
	light = FAIR_LIGHT_WAIT * w / (all / (cpus ? cpus : 1) + 1);
	if (light < FAIR_LEAST)
		light = FAIR_LEAST;
	return light < most ? light : most;
}

/*
 * Return twice the mean @burst of a task, at least 0.2 ms and at most @most. A light task waits for
 * its request divided by its share: when a task that runs for 50 us asked for 1 ms, it waited for
 * twenty times as long as it needs.
 */
static inline __u64 fair_request(__u64 burst, __u64 most)
{
	__u64 ask = burst < most ? 2 * burst : most;

	if (ask < 2 * FAIR_LEAST)
		ask = 2 * FAIR_LEAST;
	return ask < most ? ask : most;
}

#endif /* FAIR_REQUEST_H */
