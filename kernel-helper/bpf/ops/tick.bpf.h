/* SPDX-License-Identifier: GPL-2.0 */
/* A tick: the running task pays, and a waiting task that is owed the CPU may end its slice. */
#ifndef OPS_TICK_BPF_H
#define OPS_TICK_BPF_H

#include "fair/group.bpf.h"
#include "gang/balance.bpf.h"
#include "pick/cpu.bpf.h"
#include "pick/next.bpf.h"

SEC("struct_ops/gang_tick")
void BPF_PROG(gang_tick, struct task_struct *p)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *self = cpu_of(cpu);
	u32 cache = self->cache;
	struct choice best = {.free = NOT_ASKED, .cache = cache, .cpu = cpu};
	struct fair_task *t = task_of(p);
	u64 now = bpf_ktime_get_ns();
	bool turn;

	if (!t || !self->start)
		return;
	read_groups(p);
	charge(cpu, t, now);
	balance(cache, now);
	if (!waits_in(cache))
		return;
	if (running_in(cache) < cache_of(cache)->cpus)
		wake_idle(cache);
	if (leaves(cpu, t)) {
		set_slice(p, 0);
		return;
	}
	best.now = now;
	best.clock = clock_at(cache, now);
	choose(cpu, &best);
	/*
	 * turns, and work that goes on, do without the CPU of a task that is owed it for a moment
	 */
	if ((best.open || !best.brief) &&
	    ends_request(self->manner, t->bound, v_of(t), t->w, best.clock))
		return;
	turn = turn_is_open(t->gang, now);
	if (turn && turn_is_lent(gang_of(t->gang)) && !best.brief)
		return; /* the turn is short, and the budget pays for it */
	if (best.here && self->manner != MANNER_BRIEF)
		set_slice(p, 0);
	if (best.any && best.eligible && (!best.gang || best.gang != t->gang) &&
	    fair_after(deadline_now(self, now), best.deadline) >
		    (s64)fair_virtual(
			    !best.brief && !best.open && turn ? turn_most_in(cache) : GRAIN, t->w))
		set_slice(p, 0);
}

#endif /* OPS_TICK_BPF_H */
