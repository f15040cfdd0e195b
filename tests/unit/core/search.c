// SPDX-License-Identifier: Apache-2.0
/* kernel-helper/core/gang_search.h as a shared library: one host that a test fills and asks. */
#include <string.h>

#include "gang_search.h"

static struct gang_search search;
static struct gang_cost cost;
static struct gang_victims victims;

void search_reset(void)
{
	memset(&search, 0, sizeof(search));
	memset(&cost, 0, sizeof(cost));
}

int search_add(__u32 cpu, __u32 sibling, __u32 threads, int new_llc)
{
	return gang_search_add(&search, cpu, sibling, threads, new_llc);
}

void search_idle(__u32 cpu, int idle)
{
	gang_note_idle(&search, cpu, idle);
}

void search_waiting(__u32 cpu, __u32 waiting)
{
	gang_note_waiting(&search, cpu, waiting);
}

void search_offline(__u32 cpu)
{
	gang_note_offline(&search, cpu);
}

int search_is_idle(__u32 cpu)
{
	__u32 place = gang_place_of(&search, cpu);

	return gang_peek(&search.idle[place / GANG_LINE_BITS]) >> (place % GANG_LINE_BITS) & 1;
}

__u32 search_line(__u32 cpu)
{
	return gang_place_of(&search, cpu) / GANG_LINE_BITS;
}

__u32 search_find(__u32 prev, const struct gang_cpuset *allow)
{
	return gang_find_idle(&search, prev, allow, &cost);
}

void search_begin_victims(void)
{
	memset(&victims, 0, sizeof(victims));
}

__u32 search_victim(__u32 self)
{
	return gang_next_victim(&search, self, &victims, &cost);
}

__u32 search_lines(void)
{
	return cost.lines;
}

__u32 search_all_lines(void)
{
	return gang_lines(&search);
}
