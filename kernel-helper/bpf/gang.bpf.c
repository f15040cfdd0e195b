// SPDX-License-Identifier: GPL-2.0
/*
 * A gang scheduler on sched_ext: the vCPUs of a guest run at the same time.
 *
 * The decisions are in core/gang_core.h (read its header first). This file turns
 * them into what the kernel understands:
 *
 *   member wakes ──▶ enqueue ──▶ queue (gang, CPU) ──┐
 *                                                    ├──▶ dispatch ──▶ CPU
 *   any other task ─▶ enqueue ─▶ queue (0, CPU) ─────┘        ▲
 *                                                             │ owner of the column
 *   timer, or the first CPU past the deadline ──▶ lead ──▶ row, word ──▶ kicks
 *
 * One queue (DSQ) per (gang, CPU): a CPU finds its member without scanning past
 * tasks that may not run there. Queue (0, CPU) holds the ordinary tasks of a CPU
 * in virtual-time order.
 *
 * Leading. At a slot edge one CPU wins `leading`, charges whoever is on CPU, fills
 * the row, publishes the word, and only then kicks the CPUs that are out of
 * place: those with an owner that waits while something else runs. A CPU already
 * running its owner is left alone; dispatch() keeps such a task. Without that
 * check a CPU finds its gang's queue empty (the member is running, not queued),
 * takes a filler, and stays in anti-phase for good.
 *
 * Fillers. A member that halts leaves its column idle until the slot ends. The CPU
 * takes an ordinary task or, failing that, a member of another gang. A member
 * that wakes inside its own slot goes to the head of its CPU with PREEMPT.
 *
 * Strays. A gang that is dissolved may leave members in its queues, and nothing
 * but a filler would ever take them. The CPU is told to look there first.
 *
 * Ordinary tasks compete with the gangs as one more party and get slots of their
 * own. So that a short daemon or an interrupt thread need not wait for one, they
 * may interrupt a gang for OTHERS_SHARE of the time; per-CPU kernel threads always.
 *
 * What goes wrong. A higher scheduling class (RT, deadline, stop) takes a CPU out of
 * the slot; the rest of the gang goes on, N-1 wide. A member preempted that way
 * waits in the CPU's local queue and may come back in somebody else's slot:
 * running() notices and kicks. A timer that cannot be armed leaves slot edges to
 * dispatch(), that is to the tick; it is counted. If the kernel ejects this
 * scheduler, every task is back on the default class and the reason is in
 * exit_record.
 */
#include "gang_orders.bpf.h"
#include "gang_slot.bpf.h"

char _license[] SEC("license") = "GPL";

SEC("struct_ops/gang_select_cpu")
s32 BPF_PROG(gang_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct gang_task *task = task_of(p);
	bool idle = false;
	s32 cpu;

	if (task && is_member(task, p))
		return task->cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, 0);
	return cpu;
}

static void wake_if_idle(u32 cpu)
{
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
}

static void enqueue_member(struct task_struct *p, struct gang_task *task, u64 enq_flags)
{
	struct gang_state *gang = gang_of(task->gang);
	struct gang_slot *slot = slot_of(gang->domain);
	struct gang_cpu *cpu = cpu_of(task->cpu);
	u64 now = bpf_ktime_get_ns(), word = word_of(slot);

	/* woken inside its own slot: the filler leaves at once */
	if (gang_owner(slot, word, task->column) == task->gang && !gang_slot_over(word, now) &&
	    cpu->current != task->gang && scx_bpf_task_cpu(p) == task->cpu) {
		if (cpu->current != NOBODY)
			count(member_wakeups);
		scx_bpf_dsq_insert(p, DSQ_LOCAL, gang_slot_left(word, now) + MSEC,
				   enq_flags | ENQ_PREEMPT);
		return;
	}
	scx_bpf_dsq_insert(p, queue_of(task->gang, task->cpu), slot->length + MSEC, enq_flags);
	/* dissolved meanwhile? A full barrier: of us and dissolve(), the second sees the first */
	__sync_fetch_and_or(&cpu->strays, 0);
	if (*(volatile u8 *)&gang->mode == GANG_MODE_OFF)
		cpu->strays = 1;
	if (gang_slot_closed(word))
		scx_bpf_kick_cpu(task->cpu, KICK_PREEMPT);
	else
		wake_if_idle(task->cpu);
}

/* For how long may an ordinary task interrupt what runs on @cpu now? 0: it has to queue. */
static u64 may_interrupt(struct gang_cpu *cpu)
{
	struct gang_slot *slot = slot_of(cpu->domain);

	if (!cpu->grouped || cpu->current == GANG_OTHERS || cpu->current == NOBODY)
		return 0;
	/* a filler, or a member in a slot of the ordinary tasks, is in nobody's way */
	if (gang_owner(slot, word_of(slot), cpu->column) != cpu->current)
		return OTHERS_SLICE;
	return cpu->credit >= CREDIT_MIN ? cpu->credit : 0;
}

static void enqueue_other(struct task_struct *p, struct gang_task *task, u64 enq_flags)
{
	u32 id = scx_bpf_task_cpu(p);
	struct gang_cpu *cpu = cpu_of(id);
	u64 floor = cpu->vclock > OTHERS_SLICE ? cpu->vclock - OTHERS_SLICE : 0;
	u64 slice = may_interrupt(cpu);

	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, enq_flags | ENQ_PREEMPT);
		return;
	}
	if (task->vtime < floor)
		task->vtime = floor;
	/* nice 19 is slow, not starved: nobody queues further back than this */
	if (task->vtime > cpu->vclock + OTHERS_LAG)
		task->vtime = cpu->vclock + OTHERS_LAG;
	if (slice) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, slice, enq_flags | ENQ_PREEMPT);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, queue_of(GANG_OTHERS, id), OTHERS_SLICE, task->vtime,
				 enq_flags);
	wake_if_idle(id);
}

SEC("struct_ops/gang_enqueue")
void BPF_PROG(gang_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct gang_task *task = task_of(p);

	count(enqueues);
	if (!task)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, enq_flags);
	else if (is_member(task, p))
		enqueue_member(p, task, enq_flags);
	else
		enqueue_other(p, task, enq_flags);
}

/* Take an ordinary task that waits on another CPU. */
__noinline int steal(u32 self)
{
	u32 other;

	bpf_for(other, 0, nr_cpus) {
		if (other == self || scx_bpf_dsq_nr_queued(queue_of(GANG_OTHERS, other)) <= 0)
			continue;
		if (scx_bpf_dsq_move_to_local(queue_of(GANG_OTHERS, other))) {
			count(steals);
			return true;
		}
	}
	return false;
}

/* Take the member that waits here and whose gang is furthest behind. */
__noinline int fill_with_gang(u32 cpu)
{
	struct gang_slot *slot = slot_of(cpu_of(cpu)->domain);
	u64 least = ~0ULL;
	u32 i, best = 0;

	bpf_for(i, 0, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1)) {
		u32 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)];

		if (gang_of(id)->vtime >= least || scx_bpf_dsq_nr_queued(queue_of(id, cpu)) <= 0)
			continue;
		least = gang_of(id)->vtime;
		best = id;
	}
	return best && scx_bpf_dsq_move_to_local(queue_of(best, cpu));
}

__noinline int others_wait(u32 index)
{
	struct gang_domain *domain = bpf_map_lookup_elem(&domains, &index);
	u32 column;

	if (!domain)
		return false;
	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = cpu_at(domain, column);

		if (id == NO_CPU)
			break;
		if (others_on(cpu_of(id), id))
			return true;
	}
	return false;
}

static bool row_ready(struct gang_slot *slot, u64 word)
{
	u32 column;

	bpf_for(column, 0, GANG_DOMAIN_CPUS) {
		u32 id = gang_owner(slot, word, column);

		if (id && gang_of(id)->ready)
			return true;
	}
	return false;
}

/* Has the slot nobody left to serve? Asked only by a CPU that found nothing of its own. */
static bool spent(struct gang_slot *slot, u32 index, u32 owner, u64 word)
{
	if (owner)
		return !gang_of(owner)->ready && !row_ready(slot, word);
	return !row_ready(slot, word) && !others_wait(index);
}

static void end_early(struct gang_slot *slot, u32 index, u32 owner, u64 now)
{
	struct gang_slot_stats *stats;

	if (!lead(index, now, true) || !owner)
		return;
	stats = bpf_map_lookup_elem(&gang_stats, &owner);
	if (stats)
		__sync_fetch_and_add(&stats->ended_early, 1);
}

static bool is_runnable(struct task_struct *p)
{
	return p && (p->scx.flags & SCX_TASK_QUEUED);
}

/* Run the owner of this CPU's column; true when the CPU has what it should run. */
static bool dispatch_owner(u32 cpu, u32 owner, struct task_struct *prev, u64 left)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;

	if (!owner)
		return false;
	if (task && task->gang == owner) {
		set_slice(prev, left + MSEC);
		return true;
	}
	return scx_bpf_dsq_move_to_local(queue_of(owner, cpu));
}

/* Give a CPU without an owner something to do: ordinary tasks first, then other gangs. */
static bool fill(u32 cpu, struct task_struct *prev)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;

	if (scx_bpf_dsq_move_to_local(queue_of(GANG_OTHERS, cpu)))
		return true;
	if (task && !task->gang) {
		set_slice(prev, OTHERS_SLICE);
		return true;
	}
	return fill_with_gang(cpu);
}

static void dispatch_grouped(u32 cpu, struct gang_cpu *self, struct task_struct *prev)
{
	struct gang_slot *slot = slot_of(self->domain);
	u64 now = bpf_ktime_get_ns(), word = word_of(slot);
	u32 owner;

	if (gang_slot_over(word, now))
		lead(self->domain, now, false);
	word = word_of(slot);
	owner = gang_owner(slot, word, self->column);
	if (dispatch_owner(cpu, owner, prev, gang_slot_left(word, now)))
		return;
	if (!gang_slot_closed(word) && spent(slot, self->domain, owner, word)) {
		end_early(slot, self->domain, owner, now);
		word = word_of(slot);
		owner = gang_owner(slot, word, self->column);
		if (dispatch_owner(cpu, owner, prev, gang_slot_left(word, now)))
			return;
	}
	if (fill(cpu, prev)) {
		if (owner)
			count(fillers);
		return;
	}
	steal(cpu);
}

/* Run a member whose queue nobody serves: its gang was dissolved, or this CPU left the domain. */
__noinline int take_stray(u32 cpu)
{
	struct gang_cpu *self = cpu_of(cpu);
	struct gang_slot *slot = slot_of(self->domain);
	u32 i;

	/* before looking: who comes later sets it again */
	__sync_lock_test_and_set(&self->strays, 0);
	bpf_for(i, 0, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1)) {
		u32 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)];

		if ((self->grouped && gang_of(id)->mode != GANG_MODE_OFF) ||
		    scx_bpf_dsq_nr_queued(queue_of(id, cpu)) <= 0)
			continue;
		self->strays = 1;
		if (scx_bpf_dsq_move_to_local(queue_of(id, cpu)))
			return true;
	}
	return false;
}

SEC("struct_ops/gang_dispatch")
void BPF_PROG(gang_dispatch, s32 cpu, struct task_struct *prev)
{
	struct gang_cpu *self = cpu_of(cpu);

	count(dispatches);
	if (self->strays && take_stray(cpu))
		return;
	if (self->grouped)
		dispatch_grouped(cpu, self, prev);
	else if (!scx_bpf_dsq_move_to_local(queue_of(GANG_OTHERS, cpu)))
		steal(cpu);
}

SEC("struct_ops/gang_runnable")
void BPF_PROG(gang_runnable, struct task_struct *p, u64 enq_flags)
{
	struct gang_task *task = task_of(p);
	struct gang_state *gang;

	if (!task || !task->gang)
		return;
	gang = gang_of(task->gang);
	if (!__sync_fetch_and_or(&gang->ready, column_bit(task->column)))
		gang->last_slot = bpf_ktime_get_ns();
}

SEC("struct_ops/gang_running")
void BPF_PROG(gang_running, struct task_struct *p)
{
	struct gang_task *task = task_of(p);
	u32 id = scx_bpf_task_cpu(p);
	struct gang_cpu *cpu = cpu_of(id);
	u64 now = bpf_ktime_get_ns(), bit;
	struct gang_state *gang;
	struct gang_slot *slot;
	u32 owner;

	if (!task)
		return;
	cpu->current = task->gang;
	cpu->start = now;
	if (!task->gang) {
		if (cpu->vclock < task->vtime)
			cpu->vclock = task->vtime;
		return;
	}
	gang = gang_of(task->gang);
	slot = slot_of(gang->domain);
	bit = column_bit(task->column);
	__sync_fetch_and_or(&gang->ready, bit);
	__sync_fetch_and_or(&gang->running, bit);
	note_costart(task->gang, gang, slot, now);
	owner = gang_owner(slot, word_of(slot), cpu->column);
	if (cpu->grouped && owner && owner != task->gang &&
	    gang_out_of_place(gang_of(owner), cpu->column))
		scx_bpf_kick_cpu(id, KICK_PREEMPT);
}

SEC("struct_ops/gang_stopping")
void BPF_PROG(gang_stopping, struct task_struct *p, bool runnable)
{
	struct gang_task *task = task_of(p);
	struct gang_cpu *cpu = cpu_of(scx_bpf_task_cpu(p));
	u64 ns = charge(cpu, bpf_ktime_get_ns());

	cpu->start = 0;
	cpu->current = NOBODY;
	if (!task)
		return;
	if (task->gang)
		__sync_fetch_and_and(&gang_of(task->gang)->running, ~column_bit(task->column));
	else
		task->vtime += gang_charge(ns, p->scx.weight);
}

SEC("struct_ops/gang_quiescent")
void BPF_PROG(gang_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct gang_task *task = task_of(p);
	struct gang_state *gang;

	if (!task || !task->gang)
		return;
	gang = gang_of(task->gang);
	__sync_fetch_and_and(&gang->ready, ~column_bit(task->column));
	note_costart(task->gang, gang, slot_of(gang->domain), bpf_ktime_get_ns());
}

SEC("struct_ops.s/gang_init_task")
s32 BPF_PROG(gang_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

static int init_timer(u32 domain)
{
	struct slot_timer *timer = bpf_map_lookup_elem(&timers, &domain);

	if (!timer || bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC))
		return -EINVAL;
	return bpf_timer_set_callback(&timer->timer, on_deadline);
}

SEC("struct_ops.s/gang_init")
s32 BPF_PROG(gang_init)
{
	s32 err = 0;
	u32 i;

	bpf_for(i, 0, nr_cpus) {
		cpu_of(i)->current = NOBODY;
		err = scx_bpf_create_dsq(queue_of(GANG_OTHERS, i), -1);
		if (err)
			return err;
	}
	bpf_for(i, 0, GANG_MAX_DOMAINS) {
		err = init_timer(i);
		if (err)
			return err;
	}
	return 0;
}

SEC("struct_ops.s/gang_exit")
void BPF_PROG(gang_exit, struct scx_exit_info *info)
{
	struct gang_exit_record *record = bpf_map_lookup_elem(&exit_record, &zero);

	if (!record)
		return;
	bpf_probe_read_kernel_str(record->reason, sizeof(record->reason), info->reason);
	bpf_probe_read_kernel_str(record->message, sizeof(record->message), info->msg);
	record->code = info->exit_code;
	record->kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.select_cpu = (void *)gang_select_cpu,
	.enqueue = (void *)gang_enqueue,
	.dispatch = (void *)gang_dispatch,
	.runnable = (void *)gang_runnable,
	.running = (void *)gang_running,
	.stopping = (void *)gang_stopping,
	.quiescent = (void *)gang_quiescent,
	.init_task = (void *)gang_init_task,
	.init = (void *)gang_init,
	.exit = (void *)gang_exit,
	.timeout_ms = 10000,
	.name = "gangd",
};
