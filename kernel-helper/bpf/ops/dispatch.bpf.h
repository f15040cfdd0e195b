/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A CPU asks for a task: it gets the task that it ran, the next one of the queues, or one of
 * another cache.
 */
#ifndef OPS_DISPATCH_BPF_H
#define OPS_DISPATCH_BPF_H

#include "gang/turn.bpf.h"
#include "ops/run.bpf.h"
#include "ops/yield.bpf.h"
#include "pick/steal.bpf.h"

static bool is_runnable(const struct task_struct *p)
{
	return p && p->scx.flags & SCX_TASK_QUEUED;
}

/*
 * Put @cpu in the turn of the gang of @best, which fairness chose for it, open that turn, or put
 * @cpu in no turn.
 */
static void start_turn(u32 cpu, const struct choice *best, u64 displaced)
{
	struct fair_cpu *self = cpu_of(cpu);

	if (!best->gang) {
		self->turn = 0;
		return;
	}
	self->paid = best->paid;
	self->bound = best->bound;
	if (is_strict(best->gang) && !turn_is_open(best->gang, best->now))
		open_strict(cpu, best->gang, displaced == STAYS, best->clock, best->now);
	else if (turn_is_open(best->gang, best->now))
		give_turn(cpu, best->gang, false);
	else
		open_turn(cpu, best->gang, displaced,
			  best->request < FAIR_SLICE ? FAIR_SLICE : best->request, best->now);
	withdraw(self->cache, best->gang);
}

/*
 * Make @cpu choose again: another CPU took its choice. @cpu keeps its task @prev for a moment,
 * opens no turn with it, and chooses again: by then a queue has the task that the other CPU ran
 * before. If there is no @prev, because it may not stay beside a strict gang, @cpu idles meanwhile.
 * Where no CPU can be kicked, the timer pushes a task, and this function arms it only for a task in
 * the cache's queue: a member of a gang would come alone.
 */
static void choose_again(u32 cpu, struct task_struct *prev)
{
	count(overtaken);
	if (prev)
		set_slice(prev, FAIR_LEAST);
	if (!push || scx_bpf_dsq_nr_queued(cache_queue(cpu_of(cpu)->cache)) > 0)
		arm_timer(cpu, bpf_ktime_get_ns() + FAIR_LEAST);
}

static void dispatch(u32 cpu, struct task_struct *prev)
{
	struct fair_cpu *self = cpu_of(cpu);
	struct fair_task *t = is_runnable(prev) ? task_of(prev) : NULL;
	struct choice best = {.cache = self->cache, .cpu = cpu};
	bool waits = waits_in(self->cache), gone;
	u64 v = 0;

	/* cleared first: a CPU that yields to this claim would wait for ever */
	self->core_claim = 0;
	begin_sample(dispatches); /* placed here: above, it would cost 8 bytes of the stack */
	if (!waits && !t && host.caches == 1)
		return;
	best.now = bpf_ktime_get_ns();
	if (t && self->start)
		charge(cpu, t, best.now);
	if (t && throttled_by(t))
		t = NULL;
	if (self->buddy && take_buddy(&best)) { /* a member spins, and a turn is what it wants */
		best.gang = self->buddy_gang;
		best.request = FAIR_SLICE;
		best.paid = true;
		if (best.gang && self->buddy_owed && !strict_gangs)
			start_turn(cpu, &best, t && t->gang == best.gang ? v_of(t) : 0);
		return;
	}
	if (!t && !strict_gangs && !members_wait(self->cache) && !bound_wait(cpu) &&
	    scx_bpf_dsq_move_to_local(cache_queue(self->cache))) {
		self->turn = 0; /* there is one queue only, and nothing to weigh */
		return;
	}
	best.clock = clock_at(self->cache, best.now);
	best.free = waits ? NOT_COUNTED : NOT_ASKED;
	if (t) {
		v = v_of(t);
		if (!leaves(cpu, t))
			consider(&best, prev, t, v, 0);
	}
	if (waits)
		choose(cpu, &best);
	if (strict_gangs) {
		if (!best.any)
			release_core(cpu);
		else if (!best.exempt && !take_core(cpu, best.gang, best.clock, best.now)) {
			count(core_waits);
			return; /* the task waits until the other CPU has stopped */
		}
	}
	/* a CPU that ran nothing takes the task all the same */
	if (best.gang && !best.open && !strict_gangs &&
	    !announce(self->cache, best.gang, best.now) && t) {
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
		best.request = request_of(t, self->cache);
	}
	start_turn(cpu, &best, !best.queue ? STAYS : t && t->gang == best.gang ? v : 0);
	if (!best.queue && t) {
		set_slice(prev, slice_of(cpu, t, best.now));
		self->ask = ask_of(t, self->cache, best.now);
		if (strict_gangs && beside(cpu)->outdone) /* the kernel does not call running() */
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
