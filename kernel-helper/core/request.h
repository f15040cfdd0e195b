/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How much a task asks for at a time, which makes its virtual deadline v + request / w (EEVDF,
 * Stoica and Abdel-Wahab 1995): a short request is served earlier, no request more.
 */
#ifndef FAIR_REQUEST_H
#define FAIR_REQUEST_H

#include "clock.h"

#define FAIR_MSEC	1000000ULL
#define FAIR_SLICE	(3 * FAIR_MSEC)	   /* the longest request of an ordinary task */
#define FAIR_LEAST	(FAIR_MSEC / 10)   /* the shortest slice: a switch is 2 to 5 us */
#define FAIR_LIGHT_WAIT (3500 * FAIR_MSEC) /* within it the lightest task has its request */
#define FAIR_NEVER	(1ULL << 62)	   /* burst of a task that never slept */

/*
 * @most ns, or less for a task of weight @w among @nr runnable ones of weight @all on @cpus CPUs: a
 * light task that had a long request would have to wait for longer than the watchdog lets it.
 */
static inline __u64 fair_most(__u64 w, __u64 all, __u32 nr, __u32 cpus, __u64 most)
{
	__u64 light;

	if (nr < 2 || FAIR_LIGHT_WAIT * w >= most * (all + 1)) /* as below, without a division */
		return most;
	light = FAIR_LIGHT_WAIT * w / (all / (cpus ? cpus : 1) + 1);
	if (light < FAIR_LEAST)
		light = FAIR_LEAST;
	return light < most ? light : most;
}

/*
 * Twice the mean @burst of a task, at least 0.2 ms, at most @most. A light task waits for its
 * request over its share: 1 ms for one that runs for 50 us had it wait for twenty times as long as
 * it needs.
 */
static inline __u64 fair_request(__u64 burst, __u64 most)
{
	__u64 ask = burst < most ? 2 * burst : most;

	if (ask < 2 * FAIR_LEAST)
		ask = 2 * FAIR_LEAST;
	return ask < most ? ask : most;
}

#endif /* FAIR_REQUEST_H */
