/* SPDX-License-Identifier: GPL-2.0 */
/* Tasks and the scheduler come and go. */
#ifndef OPS_TASK_BPF_H
#define OPS_TASK_BPF_H

#include "gang/help.bpf.h"
#include "ops/cookie.bpf.h"
#include "ops/run.bpf.h"
#include "ops/watch.bpf.h"

/*
 * Start the account of a child with what its parent has had; the child is expected to run as its
 * parent does.
 */
static void inherit(struct fair_task *t)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct fair_task *of = parent ? bpf_task_storage_get(&tasks, parent, 0, 0) : NULL;
	const struct fair_cpu *c;
	u64 start, ran;

	if (!of)
		return;
	c = cpu_of(scx_bpf_task_cpu(parent));
	if (!of->on_rq && c->pid != (u32)parent->pid)
		return;
	start = c->start;
	ran = start ? bpf_ktime_get_ns() - start : 0;
	t->v = v_of(of) + fair_virtual(ran, of->w);
	t->clock = t->cache = of->cache;
	t->origin = TASK_FORKED;
	t->burst = of->burst >= FAIR_NEVER ? of->ran + ran : of->burst;
	t->util = of->util;
	of->heir = true;
}

SEC("struct_ops.s/gang_init_task")
s32 BPF_PROG(gang_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -ENOMEM;
	if (!args->fork && has_cookie(p))
		return -EBUSY;
	__builtin_memset(t, 0, sizeof(*t));
	bpf_rcu_read_lock(); /* otherwise a program that may sleep cannot follow args->cgroup */
	t->group = group_id(args->cgroup);
	bpf_rcu_read_unlock();
	t->origin = TASK_FOUND;
	t->burst = p->flags & PF_KTHREAD ? FAIR_SLICE : FAIR_NEVER;
	t->util = FAIR_CPU;
	t->slept = bpf_ktime_get_ns();
	if (args->fork)
		inherit(t);
	return 0;
}

/*
 * Dequeue a task that leaves the scheduler while it waits, because it gets another class or ends.
 */
SEC("struct_ops/gang_disable")
void BPF_PROG(gang_disable, struct task_struct *p)
{
	struct fair_task *t = task_of(p);

	if (!t)
		return;
	catch_loose(t);
	dequeue_task(t, bpf_ktime_get_ns());
	leave_help(p, t);
}

SEC("struct_ops/gang_set_cpumask")
void BPF_PROG(gang_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (t)
		t->allowed = 0;
}

/* Queue the tasks again that were sent to @cpu: real time took the CPU. */
SEC("struct_ops/gang_cpu_release")
void BPF_PROG(gang_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	cpu_of(cpu)->core_claim = 0;
	scx_bpf_reenqueue_local();
}

SEC("struct_ops.s/gang_init")
s32 BPF_PROG(gang_init)
{
	u32 i;

	bpf_for(i, 0, nr_cpus) {
		struct fair_timer *timer = bpf_map_lookup_elem(&slice_timers, &i);

		if (scx_bpf_create_dsq(cpu_queue(i), -1))
			return -ENOMEM;
		if (!timer || bpf_timer_init(&timer->timer, &slice_timers, CLOCK_MONOTONIC))
			return -EINVAL;
		bpf_timer_set_callback(&timer->timer, on_slice);
		timer = bpf_map_lookup_elem(&delay_timers, &i);
		if (!timer || bpf_timer_init(&timer->timer, &delay_timers, CLOCK_MONOTONIC))
			return -EINVAL;
		bpf_timer_set_callback(&timer->timer, on_delayed);
	}
	bpf_for(i, 0, GANG_MAX_CACHES) {
		struct fair_timer *timer = bpf_map_lookup_elem(&watch_timers, &i);

		if (scx_bpf_create_dsq(cache_queue(i), -1))
			return -ENOMEM;
		if (!timer || bpf_timer_init(&timer->timer, &watch_timers, CLOCK_MONOTONIC))
			return -EINVAL;
		bpf_timer_set_callback(&timer->timer, on_watch);
		if (cache_of(i)->cpus)
			bpf_timer_start(&timer->timer, WATCH_EVERY, 0);
	}
	bpf_for(i, HELP_FIRST, HELP_FIRST + HELP_MOST)
		if (scx_bpf_create_dsq(gang_queue(i), -1))
			return -ENOMEM;
	return 0;
}

#endif /* OPS_TASK_BPF_H */
