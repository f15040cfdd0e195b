// SPDX-License-Identifier: Apache-2.0
/* For how long tasks wait for a CPU, once they are woken: a histogram of each. */
#include "machine/latency.h"

/* @task has come to run. */
void latency_note(struct sim *sim, struct sim_task *task)
{
	u64 ns = sim->now - task->ready_at;
	u32 bucket = 0;

	if (ns > task->result->longest_wait_ns)
		task->result->longest_wait_ns = ns;
	if (!task->woken)
		return;
	task->woken = 0;
	task->result->wakeups++;
	if (ns > task->result->latency_max_ns)
		task->result->latency_max_ns = ns;
	/* eight buckets an octave, the first is for what is below 128 ns */
	if (ns >> 7) {
		u32 log = 63 - __builtin_clzll(ns);

		bucket = 1 + (log - 7) * 8 + (ns >> (log - 3) & 7);
	}
	task->latency[bucket < SIM_LAT_BUCKETS ? bucket : SIM_LAT_BUCKETS - 1]++;
}

/* The time below which @share of 1000 of what is in the histogram is. */
u64 latency_percentile(const struct sim_task *task, u64 share)
{
	u64 want = (task->result->wakeups * share + 999) / 1000, seen = 0;
	u32 i;

	for (i = 0; i < SIM_LAT_BUCKETS; i++) {
		seen += task->latency[i];
		if (seen && seen >= want)
			break;
	}
	if (!seen || !i)
		return 0;
	return (8ULL + (i - 1) % 8) << ((i - 1) / 8 + 4);
}
