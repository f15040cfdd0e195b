/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ordinary tasks: weighted virtual time per CPU, an idle core before an idle CPU, stealing.
 *
 * Which idle CPU a waking task gets is the kernel's own choice (it knows cores, caches and
 * nodes). A task goes on after its slice where it still comes before all that wait: taking the next
 * all the same would make halves of a CPU with two tasks, whatever they weigh.
 *
 * A CPU that a real-time task has taken for good serves nobody, and where gangs are busy no other
 * CPU is ever idle and steals: so every CPU looks, now and then, for such a CPU. Without that
 * whatever slept there last waits for as long as that lasts, be it the kernel's own watchdog.
 */
#ifndef GANG_OTHERS_BPF_H
#define GANG_OTHERS_BPF_H

#include "gang_cgroup.bpf.h"
#include "gang_slot.bpf.h"

static void wake_if_idle(u32 cpu)
{
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		wake(cpu);
}

/* Does @cpu belong to a strict gang now, which lets nobody else in? */
static bool is_reserved(const struct gang_cpu *cpu)
{
	struct gang_slot *slot = slot_of(cpu->domain);

	return cpu->grouped && slot->strict &&
	       gang_is_strict(gang_of(gang_owner(slot, word_of(slot), cpu->column)));
}

static s32 select_for_other(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle && !is_reserved(cpu_of(cpu)))
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, 0);
	return cpu;
}

/* For how long may an ordinary task interrupt what runs on @cpu now? 0: it has to queue. */
static u64 may_interrupt(struct gang_cpu *cpu)
{
	struct gang_slot *slot = slot_of(cpu->domain);

	if (!cpu->grouped || cpu->current == GANG_OTHERS || cpu->current == NOBODY ||
	    is_reserved(cpu))
		return 0;
	/* a filler, or a member in a slot of the ordinary tasks, is in nobody's way */
	if (gang_owner(slot, word_of(slot), cpu->column) != cpu->current)
		return OTHERS_SLICE;
	return cpu->credit >= CREDIT_MIN ? cpu->credit : 0;
}

/*
 * Where in the queue of @cpu: with the credit of one slice, and no further back than the lightest
 * task is after a slice. Beside heavy ones the clock is slow: no further than it goes in
 * OTHERS_WAIT.
 */
static u64 place_in_queue(struct gang_cpu *cpu, u64 vtime)
{
	u64 floor = cpu->vclock > OTHERS_SLICE ? cpu->vclock - OTHERS_SLICE : 0;
	u64 lag = gang_charge(OTHERS_WAIT, cpu->load);

	if (lag > OTHERS_LAG)
		lag = OTHERS_LAG;
	if (vtime < floor)
		vtime = floor;
	if (vtime > cpu->vclock + lag)
		vtime = cpu->vclock + lag;
	if (vtime > cpu->rightmost)
		cpu->rightmost = vtime;
	return vtime;
}

/*
 * A task that never ran. It begins half a slice behind: were it in front, a chain of short ones
 * that each fork the next would keep everybody else out. Its weight counts from the start, but the
 * debit is that of the default weight at least: at weight 1 half a slice is 150 ms of virtual time,
 * which heavier tasks that come later may take longer to run than the kernel's watchdog waits.
 */
static void admit(const struct task_struct *p, struct gang_task *task, const struct gang_cpu *cpu)
{
	u32 weight;

	weigh(p, task, bpf_ktime_get_ns());
	weight = task->weight < GANG_WEIGHT_DEFAULT ? GANG_WEIGHT_DEFAULT : task->weight;
	task->vtime = cpu->vclock + gang_charge(OTHERS_SLICE / 2, weight);
}

/*
 * Comes back with ENQ_REENQ: what waited on a CPU that a higher class takes. Nothing is to be
 * interrupted there; ENQ_PREEMPT would take the slice of the task that just left, and is queued.
 */
static void enqueue_other(struct task_struct *p, struct gang_task *task, u64 enq_flags)
{
	u32 id = scx_bpf_task_cpu(p);
	struct gang_cpu *cpu = cpu_of(id);
	s32 idle = -1;
	u64 slice;

	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		enq_flags |= enq_flags & ENQ_REENQ ? ENQ_HEAD : ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, enq_flags);
		return;
	}
	if (!task->weighed)
		admit(p, task, cpu);
	count_load(task, id);
	task->vtime = place_in_queue(cpu, task->vtime);
	slice = may_interrupt(cpu);
	if (slice && !(enq_flags & ENQ_REENQ)) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, slice, enq_flags | ENQ_PREEMPT);
		return;
	}
	/* not woken: its CPUs changed, or it lost this one. Nobody has looked for an idle CPU */
	if (!(enq_flags & ENQ_WAKEUP))
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (push && idle >= 0 && may_move_to(p, idle)) { /* it cannot be told to come for it */
		scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | idle, OTHERS_SLICE, enq_flags);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, queue_of(GANG_OTHERS, id), OTHERS_SLICE, task->vtime,
				 enq_flags);
	gang_note_waiting(&search, id, 1);
	wake_if_idle(id);
	if (idle >= 0)
		wake(idle);
}

/* The next CPU that @self may take a task from: its own core first, then its cache, then all. */
__noinline u32 next_victim(u32 self, struct gang_victims *victims)
{
	struct gang_cost cost = {};
	struct gang_sched_stats *stats = own_stats();
	u32 victim;

	if (!victims)
		return GANG_NO_CPU;
	victim = gang_next_victim(&search, self, victims, &cost);
	if (stats)
		stats->steal_looks += cost.lines;
	return victim;
}

/* Does an ordinary task wait on @victim? With @taken_by: on a CPU that a higher class had before.
 */
__noinline int offers(u32 victim, u64 taken_by)
{
	const struct gang_cpu *cpu = cpu_of(victim);

	if (scx_bpf_dsq_nr_queued(queue_of(GANG_OTHERS, victim)) <= 0)
		return false;
	return !taken_by || (cpu->current == NOBODY && cpu->left < taken_by);
}

/*
 * Take an ordinary task that waits on another CPU, with @taken_by only from those that a higher
 * class had before. Some may not run here: then from the next.
 */
__noinline int steal(u32 self, u64 taken_by)
{
	struct gang_victims victims = {};
	u32 i;

	bpf_for(i, 0, nr_cpus) {
		u32 victim = next_victim(self, &victims);

		if (victim == GANG_NO_CPU)
			break;
		if (offers(victim, taken_by) &&
		    scx_bpf_dsq_move_to_local(queue_of(GANG_OTHERS, victim))) {
			count(steals);
			return true;
		}
	}
	return false;
}

/* Run one that waits where a higher class leaves no time. */
static bool rescue(u32 cpu, struct gang_cpu *self, u64 now)
{
	if (now - self->looked < RESCUE_NS)
		return false;
	self->looked = now;
	return steal(cpu, now - TAKEN_NS);
}

/* Charge @task, the ordinary task on this CPU, for what it ran since it was last charged. */
static void charge_ordinary(struct gang_cpu *self, struct gang_task *task, u64 now)
{
	task->vtime += gang_charge(now - self->since, task->weight);
	self->since = now;
}

/*
 * True if @prev, an ordinary task that may go on, comes before all ordinary tasks that wait on
 * @cpu. A task that goes on is not started again, so it is charged and moves the clock here: else
 * tasks that arrive later are placed by the clock of its start, and wait for all that it ran since.
 */
static bool comes_first(u32 cpu, struct gang_task *prev)
{
	struct gang_cpu *self = cpu_of(cpu);

	if (self->current == GANG_OTHERS)
		charge_ordinary(self, prev, bpf_ktime_get_ns());
	if (prev->vtime >= first_vtime(queue_of(GANG_OTHERS, cpu)))
		return false;
	if (self->vclock < prev->vtime)
		self->vclock = prev->vtime;
	return true;
}

/* Run the ordinary task that is next on this CPU. */
static bool take_other(u32 cpu)
{
	return scx_bpf_dsq_move_to_local(queue_of(GANG_OTHERS, cpu));
}

/*
 * Nobody waits on @cpu any more. For dispatch() on that CPU alone: enqueue() says that somebody
 * waits, and the kernel queues the task once enqueue() is back, all under the lock of this CPU's
 * runqueue. Whoever looks without it may look in between, and would hide the task for good.
 */
static void note_empty(u32 cpu)
{
	if (gang_waits(&search, cpu) && scx_bpf_dsq_nr_queued(queue_of(GANG_OTHERS, cpu)) <= 0)
		gang_note_waiting(&search, cpu, 0);
}

/* sched_yield(): behind everybody who waits here. The kernel queues it once its slice is gone. */
static void yield_other(struct task_struct *p, struct gang_task *task)
{
	struct gang_cpu *cpu = cpu_of(scx_bpf_task_cpu(p));

	if (task->vtime < cpu->rightmost)
		task->vtime = cpu->rightmost;
}

#endif /* GANG_OTHERS_BPF_H */
