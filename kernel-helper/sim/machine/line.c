// SPDX-License-Identifier: Apache-2.0
/*
 * Cache lines that travel between CPUs while the scheduler decides. A CPU has a line from its first
 * access until another CPU writes to it. An access to a line that another CPU wrote last, and a
 * write to a line that another CPU has, waits for that CPU; the first access of all costs nothing,
 * and caches have room for every line.
 */
#include <stdlib.h>

#include "machine/line.h"

#define LINE_SHIFT 6
#define SLOTS	   (1U << 17)
#define STACK	   (1UL << 20)

struct line {
	unsigned long number; /* 0: a free slot */
	u64 have[SIM_WORDS];  /* the CPUs that have it */
};

struct sim_lines {
	struct line *slots;
};

int line_start(struct sim *sim)
{
	sim->lines = calloc(1, sizeof(*sim->lines));
	if (!sim->lines)
		return -1;
	sim->lines->slots = calloc(SLOTS, sizeof(*sim->lines->slots));
	return sim->lines->slots ? 0 : -1;
}

void line_stop(struct sim *sim)
{
	if (sim->lines)
		free(sim->lines->slots);
	free(sim->lines);
	sim->lines = NULL;
}

/* Find the slot of line @number; abort if there are more lines than slots. */
static struct line *line_of(struct sim_lines *lines, unsigned long number)
{
	u32 at = number * 0x9e3779b97f4a7c15ULL >> 47, looks;

	for (looks = 0; looks < SLOTS; looks++, at++) {
		struct line *line = &lines->slots[at % SLOTS];

		if (!line->number)
			line->number = number;
		if (line->number == number)
			return line;
	}
	abort();
}

/* Give @cpu the line; return true if another CPU has to answer for it. */
static int fetch(struct line *line, u32 words, u32 cpu, int writes)
{
	u64 bit = 1ULL << cpu % 64, others = 0;
	int has = line->have[cpu / 64] & bit ? 1 : 0;
	u32 i;

	if (has && !writes)
		return 0;
	for (i = 0; i < words; i++) {
		others |= line->have[i] & ~(i == cpu / 64 ? bit : 0);
		if (writes)
			line->have[i] = 0;
	}
	line->have[cpu / 64] |= bit;
	return others ? 1 : 0;
}

/* The CPU of this event reads or writes @at, which is not on its stack. */
void line_touch(struct sim *sim, const volatile void *at, int writes)
{
	unsigned long here = (unsigned long)__builtin_frame_address(0);
	struct line *line;
	u64 ns;

	if (!sim->lines || (unsigned long)at - here < STACK)
		return;
	line = line_of(sim->lines, (unsigned long)at >> LINE_SHIFT);
	if (!fetch(line, (sim->config->cpus + 63) / 64, sim->event.cpu, writes))
		return;
	ns = sim->config->line_ns;
	sim->result->line_ns += ns;
	if (sim->event.depth)
		sim->event.ns += ns;
	else
		sim_decide(sim, ns);
}
