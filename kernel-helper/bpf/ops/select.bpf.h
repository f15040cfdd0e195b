/* SPDX-License-Identifier: GPL-2.0 */
/* A woken task goes to an idle CPU, or takes a CPU, before it is on a runqueue. */
#ifndef OPS_SELECT_BPF_H
#define OPS_SELECT_BPF_H

#include "ops/arrival.bpf.h"

/*
 * Return true if @p has its last CPU, which idles, and so does its core, unless the waker is about
 * to sleep. The kernel's search costs as much as everything else that is done for a task which
 * finds a CPU.
 */
static bool has_last_cpu(struct task_struct *p, u32 cpu, u64 wake_flags)
{
	const struct fair_cpu *c = cpu_of(cpu);

	if (c->start || (!(wake_flags & WAKE_SYNC) && c->threads > 1 && cpu_of(c->sibling)->start))
		return false;
	return allows(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu);
}

/*
 * Let a woken task that found no idle CPU take one before it is on a runqueue, and return the CPU.
 * If enqueue() sends a task to another CPU, the kernel moves the task once more, and kernels before
 * 7.0 forget meanwhile that it preempts (enqueue_task_scx() takes its flags as an int).
 */
static s32 select_busy(struct task_struct *p, struct fair_task *t, s32 cpu, u64 wake_flags)
{
	struct arrival a = {
		.cpu = cpu,
		.cache = cpu_of(cpu)->cache,
		.sync = wake_flags & WAKE_SYNC,
	};
	u64 flags = 0;
	u32 at;

	update_mask(p, t, a.cache);
	if (t->bound || t->adopts)
		return cpu;
	a.now = bpf_ktime_get_ns();
	if (t->delayed)
		requeue_delayed(t, a.now);
	a.clock = clock_at(a.cache, a.now);
	prepare(p, t, &a);
	at = hand_over(p, t, &a);
	if (at == NOBODY) {
		at = preempt(p, t, &a);
		flags = ENQ_PREEMPT;
	}
	if (at == NOBODY)
		return cpu;
	scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, flags);
	return at;
}

SEC("struct_ops/gang_select_cpu")
s32 BPF_PROG(gang_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 cache = cpu_of(prev_cpu)->cache;
	bool crowded = is_crowded(cache), idle = false;
	struct fair_task *t;
	s32 cpu = prev_cpu;

	if (quotas) {
		t = task_of(p);
		if (t && throttled_by(t))
			return prev_cpu;
	}
	if (!crowded && !is_full_with(cache, 0)) { /* otherwise there is no idle CPU to look for */
		idle = has_last_cpu(p, prev_cpu, wake_flags);
		if (!idle)
			cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
		idle = idle && !has_real_time(cpu);
	}
	if (idle && !strict_gangs) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, 0);
		return cpu;
	}
	t = task_of(p);
	if (!t)
		return cpu;
	if (idle && ((p->flags & PF_KTHREAD) || may_send(cpu, t->gang, bpf_ktime_get_ns()))) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, at_once());
		return cpu;
	}
	/*
	 * SCX_WAKE_SYNC: the waker is about to sleep. In a crowd the task waits for the waker's
	 * CPU, to save a switch for each message.
	 */
	t->patient = crowded && (wake_flags & WAKE_SYNC);
	return t->patient ? cpu : select_busy(p, t, cpu, wake_flags);
}

#endif /* OPS_SELECT_BPF_H */
