/* SPDX-License-Identifier: GPL-2.0 */
/* The CPUs on which a task may run, and those that another class has. */
#ifndef STATE_ALLOWED_BPF_H
#define STATE_ALLOWED_BPF_H

#include "state/lookup.bpf.h"

/*
 * Functions that read a pointer in a task are global: the verifier, wherever one is read, looks for
 * a few names among those of all types of the kernel (btf_nested_type_is_trusted()), which takes it
 * longer than a thousand instructions. Programs that may sleep get there, too: hence the lock.
 */
GLOBAL int allows(struct task_struct *p __arg_trusted, u32 cpu)
{
	int allowed;

	bpf_rcu_read_lock();
	allowed = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return allowed;
}

/* Returns an idle CPU of those of @p, which is busy from now on; below 0: there is none. */
GLOBAL s32 take_idle_cpu(struct task_struct *p __arg_trusted)
{
	s32 cpu;

	bpf_rcu_read_lock();
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	bpf_rcu_read_unlock();
	return cpu;
}

/*
 * True if @p may not leave its CPU for a moment. The kernel disables migration of the current task
 * for each of our programs, of which @programs run, one in the other: that is no reason to stay.
 */
static bool is_fixed(const struct task_struct *p, u32 programs)
{
	const struct task_struct *current = bpf_get_current_task_btf();

	return p->migration_disabled > (current && current->pid == p->pid ? programs : 0);
}

static bool may_run(struct task_struct *p, u32 cpu)
{
	return (u32)scx_bpf_task_cpu(p) == cpu || (!is_fixed(p, 1) && allows(p, cpu));
}

/*
 * True if a real-time task runs on @cpu, or is about to. A task that is sent to a CPU which has
 * been released already is not queued again: it would wait there for as long as real time does not.
 */
static bool has_real_time(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->rt.rt_nr_running;
}

/* True if a task that was pushed to @cpu is on its way there, or if real time has the CPU. */
static bool is_taken(u32 cpu)
{
	return scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu) > 0 || has_real_time(cpu);
}

#endif /* STATE_ALLOWED_BPF_H */
