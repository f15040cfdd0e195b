/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupting CPUs: by a kick, or by a push where no CPU can be kicked.
 *
 * A push moves a task to the CPU that should run it. The kernel lets nobody do that who holds a run
 * queue, which is most of our callers: so a CPU is asked for, and the timer of its domain, made to
 * fire at once, looks what should run there. That a slot's edge is the timer's own doing makes the
 * common case the direct one.
 *
 * An idle CPU needs nothing: the kernel reschedules it for whoever wakes there.
 */
#ifndef GANG_PUSH_BPF_H
#define GANG_PUSH_BPF_H

#include "gang_account.bpf.h"

static u32 asks; /* CPUs may be asked for, and the timer of some domain is going to look */

static void arm(struct slot_timer *timer, u64 when)
{
	if (bpf_timer_start(&timer->timer, when, BPF_F_TIMER_ABS))
		count(timer_errors);
}

static void ask(u32 cpu)
{
	u32 domain = cpu_of(cpu)->domain;
	struct slot_timer *timer = bpf_map_lookup_elem(&timers, &domain);

	cpu_of(cpu)->asked = 1;
	/* a full barrier: of us and asks_end(), the second sees the first */
	if (timer && !__sync_lock_test_and_set(&asks, 1))
		arm(timer, bpf_ktime_get_ns());
}

/* Have @cpu look again for what it should run. */
static void interrupt(u32 cpu)
{
	if (push)
		ask(cpu);
	else
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
}

/* Likewise, if it is idle. */
static void wake(u32 cpu)
{
	if (!push)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
}

/* Do members of @gang wait on @cpu in a queue that nobody serves? */
static bool has_strays(const struct gang_cpu *self, u32 gang, u32 cpu)
{
	return !(self->grouped && gang_of(gang)->mode >= GANG_MODE_RELAXED) &&
	       scx_bpf_dsq_nr_queued(queue_of(gang, cpu)) > 0;
}

static bool push_stray(u32 cpu, const struct gang_cpu *self)
{
	const struct gang_slot *slot = slot_of(self->domain);
	u32 i;

	bpf_for(i, 0, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1)) {
		u32 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)];

		if (has_strays(self, id, cpu) && push_first(queue_of(id, cpu), cpu))
			return true;
	}
	return false;
}

/* What dispatch() would take first on @cpu. Not global: the iterator may not be used where a
 * program can sleep, and init(), whose callback this is, can. */
static bool push_to(u32 cpu)
{
	const struct gang_cpu *self = cpu_of(cpu);
	struct gang_slot *slot = slot_of(self->domain);
	u32 owner = GANG_OTHERS;

	if (self->strays && push_stray(cpu, self))
		return true;
	if (self->grouped)
		owner = gang_owner(slot, word_of(slot), self->column);
	return self->current != owner && push_first(queue_of(owner, cpu), cpu);
}

/* From here to asks_end() asking arms no timer: this is the one that looks. */
static void asks_begin(void)
{
	if (push)
		__sync_lock_test_and_set(&asks, 1);
}

static void asks_end(void)
{
	u32 cpu;

	if (!push)
		return;
	__sync_lock_test_and_set(&asks, 0);
	bpf_for(cpu, 0, nr_cpus) {
		struct gang_cpu *self = cpu_of(cpu);

		if (self->asked && __sync_lock_test_and_set(&self->asked, 0))
			push_to(cpu);
	}
}

#endif /* GANG_PUSH_BPF_H */
