// SPDX-License-Identifier: Apache-2.0
/*
 * The progress of guests. Between two events the set of vCPUs on CPU is fixed, and progress is
 * a formula:
 *
 *   barrier   a vCPU owes some ns of work before the barrier, 0: it arrived and spins. While one
 *             that has not arrived is off its CPU the others get to the barrier and no further.
 *             With all on CPU a round takes max(owed), and every further one work_ns.
 *   ipi       vCPU 0 owes some ns before its next interrupt; then every other vCPU owes extra_ns
 *             and pays when it runs. A round is over when vCPU 0 runs and nobody owes.
 *
 * All other tasks, and vCPUs of other loads, work at their own pace: an event says when one is
 * done (core.c).
 *
 * Not modelled: caches, memory, the guest's own timer ticks.
 */
#include "machine/load.h"

static struct sim_task *member(struct sim *sim, const struct sim_guest *guest, u32 index)
{
	return &sim->tasks[guest->config->first + index];
}

static int runs(const struct sim_guest *guest, u32 index)
{
	return guest->running >> index & 1;
}

static int all_run(const struct sim_guest *guest)
{
	return (guest->running & guest->members) == guest->members;
}

/* Give members their first work; a vCPU that takes no part has its own already. */
void load_init(struct sim *sim, struct sim_guest *guest)
{
	const struct sim_guest_config *config = guest->config;
	u32 i;

	for (i = 0; i < config->vcpus; i++) {
		struct sim_task *vcpu = member(sim, guest, i);

		if (vcpu->config->role != SIM_MEMBER)
			continue;
		guest->members |= (sim_mask)1 << i;
		if (config->load == SIM_BARRIER || (config->load == SIM_IPI && !i))
			vcpu->owed = config->work_ns;
	}
	guest->busy = mask_count(guest->members);
}

/* Everybody who runs works for @ns, and no longer than until it arrived. */
static void approach(struct sim *sim, struct sim_guest *guest, u64 ns)
{
	u32 i;

	for (i = 0; i < guest->busy; i++) {
		u64 *owed = &member(sim, guest, i)->owed;

		if (runs(guest, i))
			*owed -= ns < *owed ? ns : *owed;
	}
}

static void advance_barrier(struct sim *sim, struct sim_guest *guest, u64 ns)
{
	const struct sim_guest_config *config = guest->config;
	u64 longest = 0;
	u32 i;

	for (i = 0; i < guest->busy; i++) {
		u64 owed = member(sim, guest, i)->owed;

		if (owed && !runs(guest, i)) {
			approach(sim, guest, ns);
			return;
		}
		if (owed > longest)
			longest = owed;
	}
	if (ns < longest) {
		approach(sim, guest, ns);
		return;
	}
	ns -= longest;
	guest->result->rounds++;
	if (all_run(guest)) {
		guest->result->rounds += ns / config->work_ns;
		ns %= config->work_ns;
	}
	for (i = 0; i < guest->busy; i++)
		member(sim, guest, i)->owed = config->work_ns;
	approach(sim, guest, ns);
}

/* Acknowledgements: how much of @ns is left when nobody owes any more; *@paid: nobody does. */
static u64 acknowledge(struct sim *sim, struct sim_guest *guest, u64 ns, int *paid)
{
	u64 longest = 0;
	u32 i;

	*paid = 1;
	for (i = 1; i < guest->busy; i++) {
		struct sim_task *vcpu = member(sim, guest, i);

		if (vcpu->owed && runs(guest, i) && vcpu->owed > longest)
			longest = vcpu->owed;
		if (vcpu->owed && (!runs(guest, i) || vcpu->owed > ns))
			*paid = 0;
	}
	approach(sim, guest, ns); /* vCPU 0 owes nothing meanwhile */
	return *paid ? ns - longest : 0;
}

static void advance_ipi(struct sim *sim, struct sim_guest *guest, u64 ns)
{
	const struct sim_guest_config *config = guest->config;
	u64 round = config->work_ns + config->extra_ns;
	struct sim_task *sender = member(sim, guest, 0);
	int paid;
	u32 i;

	for (;;) {
		if (guest->phase) {
			ns = acknowledge(sim, guest, ns, &paid);
			if (!paid || !runs(guest, 0))
				return;
			guest->result->rounds++;
			guest->phase = 0;
			sender->owed = config->work_ns;
			if (all_run(guest)) {
				guest->result->rounds += ns / round;
				ns %= round;
			}
		}
		if (!runs(guest, 0) || ns < sender->owed) {
			sender->owed -= runs(guest, 0) ? ns : 0;
			return;
		}
		ns -= sender->owed;
		sender->owed = 0;
		guest->phase = 1;
		for (i = 1; i < guest->busy; i++)
			member(sim, guest, i)->owed = config->extra_ns;
	}
}

static void account(struct sim_guest *guest, u64 ns)
{
	sim_mask waiting = guest->ready & ~guest->on;

	if (!guest->running)
		return;
	guest->result->some_ns += ns;
	guest->result->run_ns += ns * mask_count(guest->running);
	if (!waiting)
		guest->result->corun_ns += ns;
}

/* Bring @guest up to now; to be called before ready or running change. */
void load_advance(struct sim *sim, struct sim_guest *guest)
{
	u64 ns = sim->now - guest->now;

	if (!ns)
		return;
	guest->now = sim->now;
	account(guest, ns);
	if (!(guest->running & guest->members))
		return;
	switch (guest->config->load) {
	case SIM_BARRIER:
		advance_barrier(sim, guest, ns);
		break;
	case SIM_IPI:
		advance_ipi(sim, guest, ns);
		break;
	}
}

/* How long does @task, which runs, go on before it spins, if nothing else changes? */
u64 load_until_spin(struct sim *sim, const struct sim_task *task)
{
	const struct sim_guest *guest = sim_guest_of(sim, task);
	int last = guest->members == (sim_mask)1 << task->config->index;

	if (task->config->role != SIM_MEMBER || last)
		return SIM_NEVER;
	if (guest->config->load == SIM_BARRIER)
		return task->owed;
	if (guest->config->load == SIM_IPI && !task->config->index)
		return guest->phase ? 0 : task->owed;
	return SIM_NEVER;
}

void load_finish(struct sim *sim, struct sim_guest *guest)
{
	struct sim_guest_result *result = guest->result;
	u64 ns = 0;
	u32 i;

	load_advance(sim, guest);
	result->vcpu_min_ns = SIM_NEVER;
	for (i = 0; i < guest->config->vcpus; i++) {
		const struct sim_task *vcpu = member(sim, guest, i);

		result->wait_ns += vcpu->result->wait_ns;
		if (vcpu->config->role != SIM_MEMBER)
			continue;
		ns += vcpu->result->run_ns;
		if (vcpu->result->run_ns < result->vcpu_min_ns)
			result->vcpu_min_ns = vcpu->result->run_ns;
		if (vcpu->result->run_ns > result->vcpu_max_ns)
			result->vcpu_max_ns = vcpu->result->run_ns;
	}
	if (guest->config->load == SIM_SPIN)
		result->rounds = ns / guest->config->work_ns;
	if (!guest->members)
		result->vcpu_min_ns = 0;
}
