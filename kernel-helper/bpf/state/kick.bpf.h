/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupts of CPUs. Turns and wakeups need none of this: a task that is moved to a CPU with
 * PREEMPT brings its own interrupt. Where no CPU can be kicked (7.2 of trixie-backports), the timer
 * that would have kicked a CPU pushes a waiting task to it.
 */
#ifndef STATE_KICK_BPF_H
#define STATE_KICK_BPF_H

#include "state/allowed.bpf.h"

/* Make the timer of @cpu interrupt the CPU at @at. */
static void arm_timer(u32 cpu, u64 at)
{
	struct fair_timer *timer = bpf_map_lookup_elem(&slice_timers, &cpu);

	cpu_of(cpu)->short_end = at;
	if (timer)
		bpf_timer_start(&timer->timer, at, BPF_F_TIMER_ABS);
}

/* Make @cpu, which is idle or about to be, look for a task. */
static void wake(u32 cpu)
{
	if (!push)
		scx_bpf_kick_cpu(cpu, 0);
	else
		arm_timer(cpu, bpf_ktime_get_ns());
}

/* Set before load: this kernel loses ENQ_PREEMPT if a task goes to another CPU (before 7.0). */
const volatile bool forgets;

/*
 * Preempt the task on @cpu where the kernel loses ENQ_PREEMPT. The caller sent a task to @cpu from
 * another CPU.
 */
static void drive(u32 cpu)
{
	if (forgets && !push)
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
}

/*
 * Make @cpu leave its task and choose anew. Only strict gangs need this, and gangd refuses them
 * where no CPU can be kicked.
 */
static void evict(u32 cpu)
{
	if (!push)
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
}

/*
 * Run the first task of @queue that may use @cpu there now; a timer calls this. If a higher class
 * has the CPU, the kernel queues the task again, and also the task that loses the CPU.
 */
static __always_inline bool push_first(u64 queue, u32 cpu)
{
	struct task_struct *p;
	bool moved = false;

	bpf_rcu_read_lock(); /* on_period() says why */
	bpf_for_each(scx_dsq, p, queue, 0)
	{
		if (!may_run(p, cpu))
			continue;
		moved = scx_bpf_dsq_move(&___it, p, DSQ_LOCAL_ON | cpu, ENQ_PREEMPT | ENQ_IMMED);
		break;
	}
	bpf_rcu_read_unlock();
	return moved;
}

/* Interrupt the task on @cpu, which has run for long enough; a timer calls this. */
static void interrupt(u32 cpu)
{
	u32 cache = cpu_of(cpu)->cache, i;
	const struct fair_cache *d = cache_of(cache);

	if (!push) {
		scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
		return;
	}
	if (push_first(cpu_queue(cpu), cpu) || push_first(cache_queue(cache), cpu))
		return;
	bpf_for(i, 0, d->gangs)
		if (push_first(gang_queue(gang_at(d, i)), cpu))
			break;
}

#endif /* STATE_KICK_BPF_H */
