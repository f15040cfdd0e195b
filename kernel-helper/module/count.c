// SPDX-License-Identifier: GPL-2.0
/*
 * gang.ko counts what it does, from any context: each CPU has its own numbers, and a reader gets
 * their sum.
 */
#include <linux/percpu.h>

#include "count.h"

static DEFINE_PER_CPU(u64[GANG_COUNTS], counts);

void gang_count(enum gang_count what)
{
	this_cpu_inc(counts[what]);
}

u64 gang_counted(enum gang_count what)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(counts, cpu)[what];
	return sum;
}
