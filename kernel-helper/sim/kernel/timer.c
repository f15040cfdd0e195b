// SPDX-License-Identifier: Apache-2.0
/* BPF's timers: each fires on the CPU that started it. */
#include <stdlib.h>

#include "kernel/map.h"
#include "kernel/object.h"
#include "kernel/timer.h"
#include "machine/agenda.h"
#include "shim/bpf/bpf_helpers.h"

#define BPF_F_TIMER_ABS 1

struct shim_timer {
	void *map;
	void *at; /* where it is in a value of the map */
	int (*callback)(void *map, const void *key, void *value);
	u32 cpu;
	u32 number;
};

/* struct bpf_timer, as the program declares it */
static struct shim_timer **inside(void *timer)
{
	return timer;
}

long shim_timer_init(void *timer, void *map)
{
	struct sim *sim = sim_current;
	struct shim_timer *made;

	if (*inside(timer))
		return -16;
	if (sim->timer_count == SIM_TIMERS)
		return -12;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -12;
	made->map = map;
	made->at = timer;
	made->number = sim->timer_count + 1; /* 0 is the watchdog */
	sim->timers[sim->timer_count++] = made;
	*inside(timer) = made;
	return 0;
}

long shim_timer_set_callback(void *timer, void *callback)
{
	if (!*inside(timer))
		return -22;
	(*inside(timer))->callback = callback;
	return 0;
}

long shim_timer_start(void *timer, unsigned long long ns, unsigned long long flags)
{
	struct sim *sim = sim_current;
	struct shim_timer *one = *inside(timer);
	u64 when = flags & BPF_F_TIMER_ABS ? ns - SIM_BOOT : sim->now + ns;

	if (!one || !one->callback)
		return -22;
	price(sim->config->queue_ns);
	one->cpu = sim->event.cpu;
	agenda_timer(sim, one->number, (when > sim->now ? when : sim->now) + sim->config->timer_ns);
	return 0;
}

long shim_timer_cancel(void *timer)
{
	struct sim *sim = sim_current;
	struct shim_timer *one = *inside(timer);
	int was;

	if (!one)
		return -22;
	was = agenda_timer_armed(sim, one->number);
	agenda_timer(sim, one->number, SIM_NEVER);
	return was;
}

u32 timer_cpu(const struct sim *sim, u32 number)
{
	return sim->timers[number - 1]->cpu;
}

void timer_fire(struct sim *sim, u32 number)
{
	struct shim_timer *one = sim->timers[number - 1];
	const void *key;
	u32 index;

	sim->event.cpu = one->cpu;
	/* one after the other, if several are due on a CPU */
	if (sim->cpus[one->cpu].busy > sim->now) {
		agenda_timer(sim, number, sim->cpus[one->cpu].busy);
		return;
	}
	key = map_key(one->map, one->at, &index);
	if (!key)
		return;
	object_begin(sim);
	one->callback(one->map, key, shim_map_lookup(one->map, key));
	object_end(sim, sim->config->timer_op_ns);
}

void timer_free(struct sim *sim)
{
	while (sim->timer_count)
		free(sim->timers[--sim->timer_count]);
}
