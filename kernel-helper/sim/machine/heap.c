// SPDX-License-Identifier: Apache-2.0
/*
 * The events, earliest first. Every event has a number and is in the heap once or not at all:
 * moving one is cheap, and no cancelled event is ever met. Equal times go by number, so that
 * a run can be repeated.
 */
#include <stdlib.h>

#include "machine/heap.h"

#define FANOUT 4

int heap_init(struct sim_heap *heap, u32 events)
{
	u32 i;

	heap->when = malloc(events * sizeof(*heap->when));
	heap->at = malloc(events * sizeof(*heap->at));
	heap->order = malloc(events * sizeof(*heap->order));
	heap->count = 0;
	if (!heap->when || !heap->at || !heap->order)
		return -1;
	for (i = 0; i < events; i++)
		heap->when[i] = SIM_NEVER;
	return 0;
}

void heap_free(struct sim_heap *heap)
{
	free(heap->when);
	free(heap->at);
	free(heap->order);
}

static int before(const struct sim_heap *heap, u32 a, u32 b)
{
	return heap->when[a] != heap->when[b] ? heap->when[a] < heap->when[b] : a < b;
}

static void put(struct sim_heap *heap, u32 place, u32 event)
{
	heap->order[place] = event;
	heap->at[event] = place;
}

static void up(struct sim_heap *heap, u32 place, u32 event)
{
	while (place) {
		u32 parent = (place - 1) / FANOUT;

		if (!before(heap, event, heap->order[parent]))
			break;
		put(heap, place, heap->order[parent]);
		place = parent;
	}
	put(heap, place, event);
}

static void down(struct sim_heap *heap, u32 place, u32 event)
{
	for (;;) {
		u32 child = place * FANOUT + 1, last = child + FANOUT, best = child;

		if (child >= heap->count)
			break;
		for (child++; child < last && child < heap->count; child++)
			if (before(heap, heap->order[child], heap->order[best]))
				best = child;
		if (!before(heap, heap->order[best], event))
			break;
		put(heap, place, heap->order[best]);
		place = best;
	}
	put(heap, place, event);
}

static void drop(struct sim_heap *heap, u32 place)
{
	u32 last = heap->order[--heap->count];

	if (place == heap->count)
		return;
	down(heap, place, last);
	up(heap, heap->at[last], last);
}

/* Have @event at @when; SIM_NEVER takes it out. */
void heap_set(struct sim_heap *heap, u32 event, u64 when)
{
	u64 old = heap->when[event];

	if (when == old)
		return;
	heap->when[event] = when;
	if (old == SIM_NEVER)
		up(heap, heap->count++, event);
	else if (when == SIM_NEVER)
		drop(heap, heap->at[event]);
	else if (when < old)
		up(heap, heap->at[event], event);
	else
		down(heap, heap->at[event], event);
}

/* Take out the earliest; SIM_NONE when there is none. */
u32 heap_pop(struct sim_heap *heap, u64 *when)
{
	u32 event;

	if (!heap->count)
		return SIM_NONE;
	event = heap->order[0];
	*when = heap->when[event];
	drop(heap, 0);
	heap->when[event] = SIM_NEVER;
	return event;
}
