// SPDX-License-Identifier: Apache-2.0
/*
 * CPUs that meet inside the scheduler. Each event runs as a coroutine of its CPU. The scheduler's
 * object is compiled as for the thread sanitizer, whose functions are here: at every access to
 * memory that others see too the coroutine may be left, and what happens on other CPUs meanwhile
 * happens in between. Who is left holds what the kernel would hold there: a CPU in the scheduler
 * takes no interrupt, and the lock of a runqueue is waited for.
 *
 * Which coroutine goes on, and when, is by chance, and by the seed: what was found is found again.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "machine/heap.h"
#include "machine/line.h"
#include "machine/race.h"

#define STACK	 (256UL << 10)
#define PATIENCE 30000 /* ns: nobody stays away for longer while others go on */

/* A CPU in the middle of an event. */
struct strand {
	ucontext_t context;
	void *stack;
	u64 since;
	race_handler happen;
	u32 event;
	u32 cpu;
	u32 active;
	u32 waits_for; /* the runqueue whose lock it wants, SIM_NONE: none */
};

struct sim_race {
	ucontext_t main;
	struct strand *strands; /* by CPU */
	u32 *owner;		/* of the lock of a runqueue: a CPU, SIM_NONE: nobody */
	u32 *depth;
	u32 running; /* strand, SIM_NONE: the loop */
	u32 active;
	u64 random;
};

/* Back to the loop, until somebody resumes us; our stack keeps what is known of our event. */
static void leave(struct sim *sim)
{
	struct sim_race *race = sim->race;
	struct strand *strand = &race->strands[race->running];
	struct sim_event event = sim->event;
	u64 steps = *sim->steps;

	strand->since = sim->now;
	race->running = SIM_NONE;
	swapcontext(&strand->context, &race->main);
	sim->event = event;
	*sim->steps = steps;
}

static void enter(struct sim *sim, struct strand *strand)
{
	struct sim_race *race = sim->race;

	race->running = strand->cpu;
	swapcontext(&race->main, &strand->context);
	race->running = SIM_NONE;
}

static void begin(unsigned int low, unsigned int high)
{
	struct strand *strand = (struct strand *)((unsigned long)high << 32 | low);
	struct sim *sim = sim_current;

	strand->happen(sim, strand->event);
	strand->active = 0;
	sim->race->active--;
}

/* Let @event happen on @cpu; later, if that CPU is in the middle of another. */
void race_event(struct sim *sim, u32 event, u32 cpu, race_handler happen)
{
	struct strand *strand = &sim->race->strands[cpu];
	unsigned long at = (unsigned long)strand;

	if (strand->active) {
		heap_set(&sim->heap, event, sim->now + 1000);
		return;
	}
	strand->active = 1;
	strand->happen = happen;
	strand->event = event;
	strand->waits_for = SIM_NONE;
	sim->race->active++;
	getcontext(&strand->context);
	strand->context.uc_stack.ss_sp = strand->stack;
	strand->context.uc_stack.ss_size = STACK;
	strand->context.uc_link = &sim->race->main;
	sim->event = (struct sim_event){.cpu = cpu};
	makecontext(&strand->context, (void (*)(void))begin, 2, (unsigned int)at,
		    (unsigned int)(at >> 32));
	enter(sim, strand);
}

static int can_go_on(const struct sim_race *race, const struct strand *strand)
{
	return strand->active &&
	       (strand->waits_for == SIM_NONE || race->owner[strand->waits_for] == SIM_NONE);
}

/*
 * Let somebody go on who was left: whoever would have to wait for too long if the next event, at
 * @next, came first; else, by chance, anybody or nobody. 0: nobody did.
 */
int race_resume(struct sim *sim, u64 next)
{
	struct sim_race *race = sim->race;
	u32 cpus = sim->config->cpus, first = sim_random(&race->random, cpus), i;
	int any = sim_random(&race->random, 2);

	for (i = 0; race->active && i < cpus; i++) {
		struct strand *strand = &race->strands[(first + i) % cpus];

		if (!can_go_on(race, strand))
			continue;
		if (!any && next < strand->since + PATIENCE)
			continue;
		enter(sim, strand);
		return 1;
	}
	return 0;
}

/* ---- locks of runqueues ------------------------------------------------- */

void race_lock(struct sim *sim, u32 cpu)
{
	struct sim_race *race = sim->race;

	if (!race || race->running == SIM_NONE)
		return;
	while (race->owner[cpu] != SIM_NONE && race->owner[cpu] != race->running) {
		race->strands[race->running].waits_for = cpu;
		leave(sim);
		race->strands[race->running].waits_for = SIM_NONE;
	}
	race->owner[cpu] = race->running;
	race->depth[cpu]++;
}

void race_unlock(struct sim *sim, u32 cpu)
{
	struct sim_race *race = sim->race;

	if (race && race->running != SIM_NONE && !--race->depth[cpu])
		race->owner[cpu] = SIM_NONE;
}

/* Before it waits for another runqueue's lock a CPU lets go of its own; how often it had it. */
u32 race_drop(struct sim *sim)
{
	struct sim_race *race = sim->race;
	u32 count;

	if (!race || race->running == SIM_NONE || race->owner[race->running] != race->running)
		return 0;
	count = race->depth[race->running];
	race->depth[race->running] = 0;
	race->owner[race->running] = SIM_NONE;
	return count;
}

void race_take_back(struct sim *sim, u32 count)
{
	if (!count)
		return;
	race_lock(sim, sim->race->running);
	sim->race->depth[sim->race->running] = count;
}

/* ---- where a CPU may be left --------------------------------------------- */

/* True if the scheduler, which is being called, shares @at with itself. */
static int is_shared(const struct sim *sim, const volatile void *at)
{
	return sim->event.depth && at != sim->steps;
}

static void point(const volatile void *at, int writes)
{
	struct sim *sim = sim_current;

	if (!sim || !is_shared(sim, at))
		return;
	line_touch(sim, at, writes);
	if (!sim->race || sim->race->running == SIM_NONE)
		return;
	if (!sim_random(&sim->race->random, sim->config->race))
		leave(sim);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *at)
{
	(void)at;
}

void __tsan_func_exit(void)
{
}

#define PLAIN(name, writes)                                                                        \
	void __tsan_##name(void *at)                                                               \
	{                                                                                          \
		point(at, writes);                                                                 \
	}
PLAIN(read1, 0)
PLAIN(read2, 0)
PLAIN(read4, 0)
PLAIN(read8, 0)
PLAIN(read16, 0)
PLAIN(write1, 1)
PLAIN(write2, 1)
PLAIN(write4, 1)
PLAIN(write8, 1)
PLAIN(write16, 1)
PLAIN(unaligned_read2, 0)
PLAIN(unaligned_read4, 0)
PLAIN(unaligned_read8, 0)
PLAIN(unaligned_read16, 0)
PLAIN(unaligned_write2, 1)
PLAIN(unaligned_write4, 1)
PLAIN(unaligned_write8, 1)
PLAIN(unaligned_write16, 1)

void __tsan_read_range(void *at, unsigned long size)
{
	(void)size;
	point(at, 0);
}

void __tsan_write_range(void *at, unsigned long size)
{
	(void)size;
	point(at, 1);
}

#define ATOMIC(bits, type)                                                                         \
	type __tsan_atomic##bits##_load(const volatile type *at, int order)                        \
	{                                                                                          \
		(void)order;                                                                       \
		point(at, 0);                                                                      \
		return *at;                                                                        \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                 \
	{                                                                                          \
		(void)order;                                                                       \
		point(at, 1);                                                                      \
		*at = value;                                                                       \
	}                                                                                          \
	type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)              \
	{                                                                                          \
		(void)order;                                                                       \
		point(at, 1);                                                                      \
		return __sync_lock_test_and_set(at, value);                                        \
	}                                                                                          \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type old, type new,     \
							int order, int failed)                     \
	{                                                                                          \
		(void)order;                                                                       \
		(void)failed;                                                                      \
		point(at, 1);                                                                      \
		return __sync_val_compare_and_swap(at, old, new);                                  \
	}                                                                                          \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *old, type new,  \
							  int order, int failed)                   \
	{                                                                                          \
		type was =                                                                         \
			__tsan_atomic##bits##_compare_exchange_val(at, *old, new, order, failed);  \
		int same = was == *old;                                                            \
                                                                                                   \
		*old = was;                                                                        \
		return same;                                                                       \
	}                                                                                          \
	FETCH(bits, type, add)                                                                     \
	FETCH(bits, type, sub)                                                                     \
	FETCH(bits, type, or)                                                                      \
	FETCH(bits, type, and)                                                                     \
	FETCH(bits, type, xor)

#define FETCH(bits, type, what)                                                                    \
	type __tsan_atomic##bits##_fetch_##what(volatile type *at, type value, int order)          \
	{                                                                                          \
		(void)order;                                                                       \
		point(at, 1);                                                                      \
		return __sync_fetch_and_##what(at, value);                                         \
	}
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, u32)
ATOMIC(64, u64)

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
}

/* ---- beginning and end --------------------------------------------------- */

int race_start(struct sim *sim)
{
	u32 cpus = sim->config->cpus, i;
	struct sim_race *race = calloc(1, sizeof(*race));

	if (!race)
		return -1;
	sim->race = race;
	race->random = sim->config->seed * 2 + 1;
	race->running = SIM_NONE;
	race->strands = calloc(cpus, sizeof(*race->strands));
	race->owner = malloc(cpus * sizeof(*race->owner));
	race->depth = calloc(cpus, sizeof(*race->depth));
	if (!race->strands || !race->owner || !race->depth)
		return -1;
	for (i = 0; i < cpus; i++) {
		race->owner[i] = SIM_NONE;
		race->strands[i].cpu = i;
		race->strands[i].stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (race->strands[i].stack == MAP_FAILED)
			return -1;
	}
	return 0;
}

void race_stop(struct sim *sim)
{
	struct sim_race *race = sim->race;
	u32 i;

	if (!race)
		return;
	for (i = 0; race->strands && i < sim->config->cpus; i++)
		if (race->strands[i].stack && race->strands[i].stack != MAP_FAILED)
			munmap(race->strands[i].stack, STACK);
	free(race->strands);
	free(race->owner);
	free(race->depth);
	free(race);
	sim->race = NULL;
}
