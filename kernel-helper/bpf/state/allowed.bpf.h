/* SPDX-License-Identifier: GPL-2.0 */
/* The CPUs on which a task may run, and the CPUs that another class has. */
#ifndef STATE_ALLOWED_BPF_H
#define STATE_ALLOWED_BPF_H

#include "state/lookup.bpf.h"

/*
 * A function that reads a pointer in a task is global. At each such read the verifier searches the
 * names of all types of the kernel (btf_nested_type_is_trusted()), which takes longer than a
 * thousand instructions. The function takes the RCU lock, since programs that may sleep call it,
 * too.
 */
GLOBAL int allows(struct task_struct *p __arg_trusted, u32 cpu)
{
	int allowed;

	bpf_rcu_read_lock();
	allowed = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return allowed;
}

/* Claim an idle CPU that @p may use, and return it; return a negative number if there is none. */
GLOBAL s32 take_idle_cpu(struct task_struct *p __arg_trusted)
{
	s32 cpu;

	bpf_rcu_read_lock();
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	bpf_rcu_read_unlock();
	return cpu;
}

/*
 * Return true if @p may not leave its CPU for a moment. The kernel disables migration of the
 * current task once for each of our programs that run; @programs run, nested, and these are no
 * reason to stay.
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
 * Return true if a real-time task runs on @cpu, or is about to. The kernel does not queue a task
 * again that is sent to a CPU which has been released already: the task would wait there for as
 * long as real time runs.
 */
static bool has_real_time(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->rt.rt_nr_running;
}

/*
 * Return true if a task that was pushed to @cpu is on its way there, or if real time has the CPU.
 */
static bool is_taken(u32 cpu)
{
	return scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu) > 0 || has_real_time(cpu);
}

#endif /* STATE_ALLOWED_BPF_H */
