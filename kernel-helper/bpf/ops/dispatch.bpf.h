/* SPDX-License-Identifier: GPL-2.0 */
/* A CPU asks for a task: the one it ran, the next of the queues, or one of another cache. */
#ifndef OPS_DISPATCH_BPF_H
#define OPS_DISPATCH_BPF_H

#include "gang/turn.bpf.h"
#include "ops/run.bpf.h"
#include "ops/yield.bpf.h"

static bool is_runnable(const struct task_struct *p)
{
	return p && p->scx.flags & SCX_TASK_QUEUED;
}

/* Fairness chose @best for @cpu: it is in that gang's turn, opens one, or is in none. */
static void start_turn(u32 cpu, const struct choice *best, u64 displaced)
{
	struct fair_cpu *self = cpu_of(cpu);

	if (!best->gang) {
		self->turn = 0;
		return;
	}
	if (is_strict(best->gang) && !turn_is_open(best->gang, best->now))
		open_strict(cpu, best->gang, displaced == STAYS, best->clock, best->now);
	else if (turn_is_open(best->gang, best->now))
		give_turn(cpu, best->gang, false);
	else
		open_turn(cpu, best->gang, displaced,
			  best->request < FAIR_SLICE ? FAIR_SLICE : best->request, best->now);
	end_call(self->domain, best->gang);
}

/*
 * Another CPU took what @cpu chose. @cpu keeps its task @prev for a moment, opens no turn with it,
 * and chooses again: by then a queue has the task that the other CPU ran before. Without @prev,
 * which may not stay beside a strict gang, @cpu idles meanwhile. Where no CPU can be kicked the
 * timer pushes a task, which is for those of the domain's queue only: a member of a gang would come
 * alone.
 */
static void choose_again(u32 cpu, struct task_struct *prev)
{
	count(overtaken);
	if (prev)
		set_slice(prev, FAIR_LEAST);
	if (!push || scx_bpf_dsq_nr_queued(domain_queue(cpu_of(cpu)->domain)) > 0)
		arm_timer(cpu, bpf_ktime_get_ns() + FAIR_LEAST);
}

static void dispatch(u32 cpu, struct task_struct *prev)
{
	struct fair_cpu *self = cpu_of(cpu);
	struct fair_task *t = is_runnable(prev) ? task_of(prev) : NULL;
	struct choice best = {.domain = self->domain, .cpu = cpu};
	bool waits = waits_in(self->domain), gone;
	u64 v = 0;

	self->core_claim = 0;	  /* first: who stays away for its sake would wait for ever */
	begin_sample(dispatches); /* here: ahead of the above it costs 8 bytes of the stack */
	if (!waits && !t && host.domains == 1)
		return;
	best.now = bpf_ktime_get_ns();
	if (t && self->start)
		charge(cpu, t, best.now);
	if (t && throttled_by(t))
		t = NULL;
	if (self->buddy && take_buddy(&best)) { /* a member spins: a turn is what it wants */
		best.gang = self->buddy_gang;
		best.request = FAIR_SLICE;
		if (best.gang && self->buddy_owed && !strict_gangs)
			start_turn(cpu, &best, t && t->gang == best.gang ? v_of(t) : 0);
		return;
	}
	if (!t && !strict_gangs && !members_wait(self->domain) && !bound_wait(cpu) &&
	    scx_bpf_dsq_move_to_local(domain_queue(self->domain))) {
		self->turn = 0; /* one queue only: nothing to weigh */
		return;
	}
	best.clock = clock_at(self->domain, best.now);
	best.free = waits ? NOT_COUNTED : 0;
	if (t) {
		v = v_of(t);
		consider(&best, prev, t, v, 0);
	}
	if (waits)
		choose(cpu, &best);
	if (strict_gangs) {
		if (!best.any)
			release_core(cpu);
		else if (!best.exempt && !take_core(cpu, best.gang, best.clock, best.now)) {
			count(core_waits);
			return; /* until the other CPU has stopped */
		}
	}
	/* a CPU that ran nothing takes the task all the same */
	if (best.gang && !best.open && !strict_gangs && !call(self->domain, best.gang, best.now) &&
	    t) {
		choose_again(cpu, prev);
		return;
	}
	gone = best.queue && !take_chosen(&best) &&
	       (t || strict_gangs || !scx_bpf_dsq_move_to_local(best.queue));
	if (gone)
		best.queue = best.any = 0;
	if (!best.queue)
		self->core_claim = 0;
	if (!best.any) {
		if (gone && (t || strict_gangs))
			choose_again(cpu, strict_gangs ? NULL : prev);
		else
			steal(cpu);
		return;
	}
	if (!best.queue) {
		if (!t)
			return;
		best.gang = t->gang;
		best.request = request_of(t, self->domain);
	}
	start_turn(cpu, &best, !best.queue ? STAYS : t && t->gang == best.gang ? v : 0);
	if (!best.queue && t) {
		set_slice(prev, slice_of(cpu, t, best.now));
		self->ask = ask_of(t, self->domain, best.now);
		if (strict_gangs && beside(cpu)->outdone) /* running() is not called */
			tell_core(cpu, t->gang);
	}
}

SEC("struct_ops/gang_dispatch")
void BPF_PROG(gang_dispatch, s32 cpu, struct task_struct *prev)
{
	dispatch(cpu, prev);
	end_sample(dispatch);
}

#endif /* OPS_DISPATCH_BPF_H */
