// SPDX-License-Identifier: Apache-2.0
/* A slice of EEVDF on a host of so many CPUs, and the lag that is kept in slices. */
#include "fair/slice.h"

#define COUNTED_CPUS 8

/*
 * update_sysctl() with SCHED_TUNABLESCALING_LOG, the default (kernel/sched/fair.c of 6.18): the
 * base of 0.7 ms times 1 + ilog2(CPUs), of which 8 count. It is 0.75 ms up to 6.14.
 */
u64 slice_of_host(const struct sim_config *config)
{
	u32 cpus = config->cpus < COUNTED_CPUS ? config->cpus : COUNTED_CPUS, factor = 1;

	while (cpus >>= 1)
		factor++;
	return config->slice_ns * factor;
}

/* entity_lag() (kernel/sched/fair.c of 6.18): two slices, or a tick where that is longer. */
u64 slice_most_lag(u64 slice, u64 tick)
{
	return 2 * slice > tick ? 2 * slice : tick;
}
