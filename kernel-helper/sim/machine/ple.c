// SPDX-License-Identifier: Apache-2.0
/* Pause loop exits: when a vCPU that spins leaves its guest. KVM's answer is in kernel/core.c. */
#include "machine/agenda.h"
#include "machine/load.h"
#include "machine/ple.h"

/* The vCPUs of @guest that want a CPU and have none. */
sim_mask ple_waiting(const struct sim_guest *guest)
{
	return guest->ready & ~guest->on;
}

/* @task exits once it has spun for as long as it may. */
void ple_arm_one(struct sim *sim, struct sim_task *task)
{
	u64 begins = load_until_spin(sim, task);

	if (begins != SIM_NEVER)
		agenda_spin(sim, task, sim->now + begins + sim->config->ple_ns);
}

/* @task came on CPU or left it, or was woken: who spins may now have a reason to exit. */
void ple_arm(struct sim *sim, struct sim_task *task)
{
	struct sim_guest *guest = sim_guest_of(sim, task);
	u32 i;

	if (!guest || !guest->config->ple || !ple_waiting(guest))
		return;
	load_advance(sim, guest);
	for (i = 0; i < guest->config->vcpus; i++) {
		struct sim_task *sibling = &sim->tasks[guest->config->first + i];

		if (guest->running >> i & 1)
			ple_arm_one(sim, sibling);
	}
}
