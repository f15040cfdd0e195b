/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sched_yield(), and KVM's directed yields: a vCPU that spins (pause-loop exits) names a sibling
 * that may hold what it waits for. The sibling runs next on the spinner's CPU if it is owed that,
 * or not far ahead of it: directed yields move time between siblings, and make none. A member of a
 * gang runs with the spinner's virtual time, and the spinner waits with the sibling's: otherwise a
 * member that never spins would get ahead of one that does, and be left out of their turns.
 */
#ifndef OPS_YIELD_BPF_H
#define OPS_YIELD_BPF_H

#include "gang/help.bpf.h"
#include "pick/next.bpf.h"

#define YIELD_AHEAD (10 * MSEC)

/* Run the sibling that a directed yield named, and no other; return false if it cannot run here. */
static bool take_buddy(struct choice *best)
{
	struct fair_cpu *self = cpu_of(best->cpu);

	best->queue = self->buddy_queue;
	best->pid = self->buddy;
	self->buddy = 0;
	if (may_send(best->cpu, self->buddy_gang, best->now)) {
		if (take(best)) {
			count(yields_hit);
			count_of(self->buddy_gang, yields_hit, 1);
			return true;
		}
		unsend(best->cpu);
	}
	best->queue = best->pid = 0;
	return false;
}

/* Make a task that yields a CPU which it is owed forgo one request, as in EEVDF since 6.18. */
static void skip_request(struct task_struct *p, struct fair_task *t)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *self = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns();

	set_slice(p, 0);
	if (!t || !self->start)
		return;
	charge(cpu, t, now);
	if (fair_after(v_of(t), clock_at(t->cache, now)) > 0)
		return;
	set_v(t, v_of(t) + fair_virtual(request_of(t, t->cache), t->w));
	self->v = v_of(t);
}

/*
 * Return true if @t and @o are members of one gang with equal weight in one cache: their virtual
 * times can be swapped.
 */
static bool are_even(const struct fair_task *t, const struct fair_task *o)
{
	return t->gang && t->gang == o->gang && t->cache == o->cache && t->w == o->w;
}

/*
 * Swap the virtual times of @t, which runs on @self, and @o, which is ahead of it; @t waits then.
 */
static void exchange(struct fair_cpu *self, struct fair_task *t, struct fair_task *o)
{
	u64 v = v_of(t);

	set_v(t, v_of(o));
	set_v(o, v);
	self->v = v_of(t);
}

static bool yield_to(struct task_struct *from, struct fair_task *t, struct task_struct *to)
{
	u32 cpu = scx_bpf_task_cpu(from);
	struct fair_cpu *self = cpu_of(cpu);
	/* @to waits: it learns its gang when it leaves the queue */
	struct fair_task *o = bpf_task_storage_get(&tasks, to, 0, 0);
	u64 now = bpf_ktime_get_ns();
	bool swaps = false;
	s64 ahead;

	count(yields);
	if (t)
		count_of(t->gang, yields, 1);
	if (!t || !o || !o->on_rq || o->delayed || o->throttled || !o->queue ||
	    cpu_of(scx_bpf_task_cpu(to))->pid == (u32)to->pid)
		return false;
	if (help && from->tgid == to->tgid && !(t->gang && o->gang))
		note_help(from, t, o);
	if (are_even(t, o)) {
		if (self->start)
			charge(cpu, t, now);
		swaps = fair_after(v_of(o), v_of(t)) > 0;
	}
	ahead = fair_after(v_of(swaps ? t : o), clock_at(o->cache, now));
	if (ahead > (s64)fair_virtual(YIELD_AHEAD, o->w))
		return false;
	if (swaps)
		exchange(self, t, o);
	self->buddy_owed = ahead <= 0;
	self->buddy = to->pid;
	self->buddy_queue = o->queue;
	self->buddy_gang = t->gang;
	set_slice(from, 0);
	return true;
}

SEC("struct_ops/gang_yield")
bool BPF_PROG(gang_yield, struct task_struct *from, struct task_struct *to)
{
	struct fair_task *t = task_of(from);

	if (to)
		return yield_to(from, t, to);
	skip_request(from, t);
	return false;
}

#endif /* OPS_YIELD_BPF_H */
