// SPDX-License-Identifier: Apache-2.0
/*
 * What guests get done. Between two events the set of vCPUs on CPU is fixed, and progress is
 * a formula:
 *
 *   barrier   a vCPU has `left` ns to go to the barrier, 0: it arrived and spins. While one that
 *             has not arrived is off its CPU the others get to the barrier and no further. With
 *             all on CPU a round takes max(left), and every further one work_ns.
 *   ipi       vCPU 0 has `left` ns to its next interrupt; then every other vCPU owes extra_ns
 *             and pays when it runs. A round is over when vCPU 0 runs and nobody owes.
 *   sleep     a vCPU has `left` ns to its next halt: an event, since others then get its CPU.
 *
 * Not modelled: caches, memory, the guest's own timer ticks, PAUSE exits (the spinner keeps its
 * CPU).
 */
#include "sim.h"

static struct sim_vcpu *member(struct sim *sim, const struct sim_guest *guest, __u32 index)
{
	return &sim->vcpus[guest->config->first + index];
}

static __u64 everybody(const struct sim_guest *guest)
{
	return ~0ULL >> (64 - guest->config->vcpus);
}

static int runs(const struct sim_guest *guest, __u32 index)
{
	return guest->running >> index & 1;
}

static __u64 least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Who halts at once and who begins with what; vCPUs are halted until host_wake(). */
void load_init(struct sim *sim, struct sim_guest *guest)
{
	const struct sim_guest_config *config = guest->config;
	__u32 i;

	for (i = 0; i < config->vcpus; i++) {
		struct sim_vcpu *vcpu = member(sim, guest, i);

		vcpu->left = config->load == SIM_SPIN ? 0 : config->work_ns;
		if (config->load == SIM_IPI && i)
			vcpu->left = 0;
	}
}

/* Everybody who runs works for @ns, and no longer than until it arrived. */
static void approach(struct sim *sim, struct sim_guest *guest, __u64 ns)
{
	__u32 i;

	for (i = 0; i < guest->config->vcpus; i++)
		if (runs(guest, i))
			member(sim, guest, i)->left -= least(ns, member(sim, guest, i)->left);
}

static void advance_barrier(struct sim *sim, struct sim_guest *guest, __u64 ns)
{
	const struct sim_guest_config *config = guest->config;
	__u64 longest = 0;
	__u32 i;

	for (i = 0; i < config->vcpus; i++) {
		__u64 left = member(sim, guest, i)->left;

		if (left && !runs(guest, i)) {
			approach(sim, guest, ns);
			return;
		}
		if (left > longest)
			longest = left;
	}
	if (ns < longest) {
		approach(sim, guest, ns);
		return;
	}
	ns -= longest;
	guest->result->rounds++;
	if (guest->running == everybody(guest)) {
		guest->result->rounds += ns / config->work_ns;
		ns %= config->work_ns;
	}
	for (i = 0; i < config->vcpus; i++)
		member(sim, guest, i)->left = config->work_ns;
	approach(sim, guest, ns);
}

/* Acknowledgements: how much of @ns is left when nobody owes any more; *@paid: nobody does. */
static __u64 acknowledge(struct sim *sim, struct sim_guest *guest, __u64 ns, int *paid)
{
	__u64 longest = 0;
	__u32 i;

	*paid = 1;
	for (i = 1; i < guest->config->vcpus; i++) {
		struct sim_vcpu *vcpu = member(sim, guest, i);

		if (vcpu->left && runs(guest, i) && vcpu->left > longest)
			longest = vcpu->left;
		if (vcpu->left && (!runs(guest, i) || vcpu->left > ns))
			*paid = 0;
	}
	for (i = 1; i < guest->config->vcpus; i++)
		if (runs(guest, i))
			member(sim, guest, i)->left -= least(ns, member(sim, guest, i)->left);
	return *paid ? ns - longest : 0;
}

static void advance_ipi(struct sim *sim, struct sim_guest *guest, __u64 ns)
{
	const struct sim_guest_config *config = guest->config;
	__u64 round = config->work_ns + config->extra_ns;
	struct sim_vcpu *sender = member(sim, guest, 0);
	int paid;
	__u32 i;

	for (;;) {
		if (guest->phase) {
			ns = acknowledge(sim, guest, ns, &paid);
			if (!paid || !runs(guest, 0))
				return;
			guest->result->rounds++;
			guest->phase = 0;
			sender->left = config->work_ns;
			if (guest->running == everybody(guest)) {
				guest->result->rounds += ns / round;
				ns %= round;
			}
		}
		if (!runs(guest, 0) || ns < sender->left) {
			sender->left -= runs(guest, 0) ? ns : 0;
			return;
		}
		ns -= sender->left;
		sender->left = 0;
		guest->phase = 1;
		for (i = 1; i < config->vcpus; i++)
			member(sim, guest, i)->left = config->extra_ns;
	}
}

static void account(struct sim_guest *guest, __u64 ns)
{
	__u64 waiting = guest->ready & ~guest->running;

	if (!guest->running)
		return;
	guest->result->some_ns += ns;
	guest->result->run_ns += ns * gang_popcount(guest->running);
	if (!waiting)
		guest->result->corun_ns += ns;
}

/* Bring @guest up to now; to be called before ready or running change. */
void load_advance(struct sim *sim, struct sim_guest *guest)
{
	__u64 ns = sim->now - guest->now;

	if (!ns)
		return;
	guest->now = sim->now;
	account(guest, ns);
	if (!guest->running)
		return;
	switch (guest->config->load) {
	case SIM_BARRIER:
		advance_barrier(sim, guest, ns);
		break;
	case SIM_IPI:
		advance_ipi(sim, guest, ns);
		break;
	case SIM_SLEEP:
	case SIM_DUTY:
		approach(sim, guest, ns);
		break;
	}
}

/* For how long does @vcpu run before it halts, of its own? */
__u64 load_until_halt(const struct sim_guest *guest, const struct sim_vcpu *vcpu)
{
	if (guest->config->load == SIM_SLEEP || guest->config->load == SIM_DUTY)
		return vcpu->left;
	return SIM_NEVER;
}

/* @vcpu did its work and halts: whom it wakes (SIM_NONE: nobody), or how long it sleeps. */
__u32 load_halt(struct sim *sim, __u32 id, __u64 *sleep_ns)
{
	struct sim_vcpu *vcpu = &sim->vcpus[id];
	struct sim_guest *guest = &sim->guests[vcpu->guest];

	*sleep_ns = 0;
	vcpu->left = guest->config->work_ns;
	if (guest->config->load == SIM_DUTY) {
		guest->result->rounds++;
		*sleep_ns = guest->config->extra_ns;
		return SIM_NONE;
	}
	guest->result->rounds += vcpu->index & 1;
	return vcpu->index & 1 ? id - 1 : id + 1;
}

void load_finish(struct sim *sim, struct sim_guest *guest)
{
	struct sim_guest_result *result = guest->result;
	__u32 i;

	load_advance(sim, guest);
	if (guest->config->load == SIM_SPIN)
		result->rounds = result->run_ns / guest->config->work_ns;
	result->vcpu_min_ns = SIM_NEVER;
	for (i = 0; i < guest->config->vcpus; i++) {
		__u64 ns = member(sim, guest, i)->run_ns;

		if (ns < result->vcpu_min_ns)
			result->vcpu_min_ns = ns;
		if (ns > result->vcpu_max_ns)
			result->vcpu_max_ns = ns;
	}
}
