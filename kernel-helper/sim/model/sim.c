// SPDX-License-Identifier: Apache-2.0
#include "model/sim.h"

__thread struct sim *sim_current;

/* 0 to @below - 1; xorshift64* */
u64 sim_random(u64 *state, u64 below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return below ? (*state * 0x2545f4914f6cdd1dULL >> 11) % below : 0;
}

struct sim_guest *sim_guest_of(struct sim *sim, const struct sim_task *task)
{
	return task->config->guest == SIM_NONE ? NULL : &sim->guests[task->config->guest];
}

/* The first CPU of the last-level cache of @cpu; *@past: the one behind its last. */
u32 sim_cache(const struct sim *sim, u32 cpu, u32 *past)
{
	u32 llc = sim->config->llc_cpus, from = cpu / llc * llc;

	*past = from + llc < sim->config->cpus ? from + llc : sim->config->cpus;
	return from;
}

int sim_allowed(const struct sim_task *task, u32 cpu)
{
	return task->p.cpus_mask.bits[cpu / 64] >> cpu % 64 & 1;
}

/* One of the two places of a chain is always free when the other forks; the second at first. */
int sim_is_unborn(const struct sim_task *task)
{
	return task->config->role == SIM_CHAIN && task->config->index & 1;
}

/* The CPU of this event is busy for @ns more before its task goes on or another one begins. */
void sim_spend(struct sim *sim, u64 ns)
{
	sim->cpus[sim->event.cpu].debt += ns;
	sim->event.spent += ns;
}

/* Likewise, with a decision of the scheduler. */
void sim_decide(struct sim *sim, u64 ns)
{
	sim_spend(sim, ns);
	sim->result->op_ns += ns;
}
