// SPDX-License-Identifier: Apache-2.0
/*
 * Which CPUs idle, and which of them a waking task gets: kernel/sched/ext_idle.c of 6.18. A CPU
 * that is handed out is no longer idle for others, although nothing runs there yet; it is again
 * when it finds nothing to do. One node.
 */
#include "kernel/idle.h"
#include "machine/line.h"

static int test(const u64 *mask, u32 cpu)
{
	return mask[cpu / 64] >> cpu % 64 & 1;
}

static void assign(u64 *mask, u32 cpu, int on)
{
	if (on)
		mask[cpu / 64] |= 1ULL << cpu % 64;
	else
		mask[cpu / 64] &= ~(1ULL << cpu % 64);
}

static u32 first_thread(const struct sim *sim, u32 cpu)
{
	return cpu - cpu % sim->config->threads;
}

static void note_core(struct sim *sim, u32 cpu)
{
	u32 first = first_thread(sim, cpu), i;
	int all = 1;

	for (i = first; i < first + sim->config->threads; i++)
		all &= test(sim->idle, i);
	for (i = first; i < first + sim->config->threads; i++)
		assign(sim->idle_core, i, all);
}

void idle_note(struct sim *sim, u32 cpu, int idle)
{
	line_touch(sim, &sim->idle[cpu / 64], 1);
	assign(sim->idle, cpu, idle);
	note_core(sim, cpu);
}

/* scx_idle_test_and_clear_cpu(); it also takes the core from those that are wholly idle */
int idle_claim(struct sim *sim, u32 cpu)
{
	u32 first = first_thread(sim, cpu), i;
	int idle = test(sim->idle, cpu);

	line_touch(sim, &sim->idle[cpu / 64], idle);
	for (i = first; i < first + sim->config->threads; i++)
		assign(sim->idle_core, i, 0);
	assign(sim->idle, cpu, 0);
	return idle;
}

/* One of the CPUs @from to @past - 1 that are idle and @allowed, claimed; -1: none is. */
static int pick_in(struct sim *sim, const unsigned long *allowed, int core, u32 from, u32 past)
{
	const u64 *mask = core ? sim->idle_core : sim->idle;
	u32 word, cpu;

	for (word = from / 64; word * 64 < past; word++) {
		u64 left = mask[word] & allowed[word];

		while (left) {
			cpu = word * 64 + __builtin_ctzll(left);
			left &= left - 1;
			if (cpu >= from && cpu < past && idle_claim(sim, cpu))
				return cpu;
		}
	}
	return -1;
}

/* scx_bpf_pick_idle_cpu(): of a wholly idle core if there is one */
int idle_pick(struct sim *sim, const unsigned long *allowed, int core_only)
{
	int cpu = -1;

	if (sim->config->threads > 1)
		cpu = pick_in(sim, allowed, 1, 0, sim->config->cpus);
	if (cpu < 0 && !core_only)
		cpu = pick_in(sim, allowed, 0, 0, sim->config->cpus);
	return cpu;
}

/* select_idle_sibling(): of the cache of @prev alone; -1: none is idle */
int idle_near(struct sim *sim, struct sim_task *task, u32 prev)
{
	const unsigned long *allowed = task->p.cpus_ptr->bits;
	u32 past, from = sim_cache(sim, prev, &past);
	int cpu = -1;

	if (sim_allowed(task, prev) && idle_claim(sim, prev))
		return prev;
	if (sim->config->threads > 1)
		cpu = pick_in(sim, allowed, 1, from, past);
	return cpu >= 0 ? cpu : pick_in(sim, allowed, 0, from, past);
}

/* scx_select_cpu_dfl() for a wakeup that is not synchronous; -1: no CPU is idle */
int idle_select(struct sim *sim, struct sim_task *task, u32 prev)
{
	const unsigned long *allowed = task->p.cpus_ptr->bits;
	u32 past, from = sim_cache(sim, prev, &past);
	int is_allowed = sim_allowed(task, prev), cpu;

	if (sim->config->threads > 1) {
		if (is_allowed && test(sim->idle_core, prev) && idle_claim(sim, prev))
			return prev;
		cpu = pick_in(sim, allowed, 1, from, past);
		if (cpu < 0)
			cpu = pick_in(sim, allowed, 1, 0, sim->config->cpus);
		if (cpu >= 0)
			return cpu;
	}
	if (is_allowed && idle_claim(sim, prev))
		return prev;
	cpu = pick_in(sim, allowed, 0, from, past);
	return cpu >= 0 ? cpu : pick_in(sim, allowed, 0, 0, sim->config->cpus);
}
