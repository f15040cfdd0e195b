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
 * the row, publishes the word, and only then interrupts the CPUs that are out of
 * place: those with an owner that waits while something else runs. By a kick; where the
 * kernel has none that can be called, by a push (gang_push.bpf.h). A CPU already
 * running its owner is left alone; dispatch() keeps such a task. Without that
 * check a CPU finds its gang's queue empty (the member is running, not queued),
 * takes a filler, and stays in anti-phase for good.
 *
 * Fillers. A member that halts leaves its column idle until the slot ends. The CPU
 * takes an ordinary task or, failing that, a member of another gang. A member
 * that wakes inside its own slot goes to the head of its CPU with PREEMPT, unless its
 * gang and the filler's both take turns (gang_core.h): it waits for the other's slice.
 *
 * Strays. A gang that is dissolved may leave members in its queues, and nothing
 * but a filler would ever take them. The CPU is told to look there first.
 *
 * Ordinary tasks compete with the gangs as one more party and get slots of their
 * own while any gang is awake; while all sleep, no slot is open and nobody leads. So that a short
 * daemon or an interrupt thread need not wait for one, they may interrupt a gang for OTHERS_SHARE
 * of the time; per-CPU kernel threads always.
 *
 * What goes wrong. A higher scheduling class (RT, deadline, stop) takes a CPU out of
 * the slot; the rest of the gang goes on, N-1 wide. What was to run there goes back
 * into its queue, and ordinary tasks are run elsewhere if that lasts (gang_others.bpf.h).
 * A member that comes back in somebody else's slot all the same is noticed by
 * running(), which kicks. A timer that cannot be armed leaves slot edges to
 * dispatch(), that is to the tick; it is counted. If the kernel ejects this
 * scheduler, every task is back on the default class and the reason is in
 * exit_record.
 */
#include "gang_orders.bpf.h"
#include "gang_others.bpf.h"
#include "gang_report.bpf.h"
#include "gang_strict.bpf.h"

char _license[] SEC("license") = "GPL";

SEC("struct_ops/gang_select_cpu")
s32 BPF_PROG(gang_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct gang_task *task = task_of(p);

	if (task && is_member(task, p))
		return task->cpu;
	return select_for_other(p, prev_cpu, wake_flags);
}

/* A slot's slice outlives the slot: its end is a kick. Siblings on one column take turns. */
static u64 member_slice(struct gang_task *task, u64 left)
{
	return gang_of(task->gang)->crowded & column_bit(task->column) ? SHARED_SLICE : left + MSEC;
}

static bool waits_for_filler(const struct gang_state *gang, const struct gang_cpu *cpu)
{
	return cpu->current != NOBODY && gang_waits_for(gang, gang_of(cpu->current));
}

/*
 * A member wants to run. There is no callback of ours for that: it would be called for every task
 * of the host. A task that comes without a wakeup was moved, or its gang was set up meanwhile.
 */
static void note_ready(struct gang_state *gang, struct gang_task *task, u64 enq_flags, u64 now)
{
	u64 bit = column_bit(task->column);

	if ((gang->ready & bit) && !(enq_flags & ENQ_WAKEUP))
		return;
	gang_note_change(gang, now);
	if (!(gang->seen & bit))
		__sync_fetch_and_or(&gang->seen, bit);
	if (enq_flags & ENQ_WAKEUP) {
		task->woke = now;
		task->together = gang->together;
	}
	if (!__sync_fetch_and_or(&gang->ready, bit))
		gang->last_slot = now;
}

/* Is the column the gang's, or may it be from now on? Who is owed it may have had enough meanwhile.
 */
static bool owns_column(struct gang_slot *slot, struct gang_state *gang,
			const struct gang_task *task, u64 word)
{
	if (gang_owner(slot, word, task->column) == task->gang)
		return true;
	if (gang_is_strict(gang) || others_on(cpu_of(task->cpu), task->cpu))
		return false;
	return gang_join(slot, gang, task->gang, word, task->column);
}

static void enqueue_member(struct task_struct *p, struct gang_task *task, u64 enq_flags)
{
	struct gang_state *gang = gang_of(task->gang);
	struct gang_slot *slot = slot_of(gang->domain);
	struct gang_cpu *cpu = cpu_of(task->cpu);
	u64 now = bpf_ktime_get_ns(), word = word_of(slot);

	note_ready(gang, task, enq_flags, now);
	/* woken inside its own slot: the filler leaves at once. A strict gang has to claim first */
	if (owns_column(slot, gang, task, word) && !gang_slot_over(word, now) &&
	    cpu->current != task->gang && scx_bpf_task_cpu(p) == task->cpu &&
	    !gang_is_strict(gang) && !(enq_flags & ENQ_REENQ) && !waits_for_filler(gang, cpu)) {
		if (cpu->current != NOBODY)
			count(member_wakeups);
		scx_bpf_dsq_insert(p, DSQ_LOCAL, member_slice(task, gang_slot_left(word, now)),
				   enq_flags | ENQ_PREEMPT);
		return;
	}
	scx_bpf_dsq_insert(p, queue_of(task->gang, task->cpu), member_slice(task, slot->length),
			   enq_flags);
	/* dissolved meanwhile? A full barrier: of us and dissolve(), the second sees the first */
	__sync_fetch_and_or(&cpu->strays, 0);
	if (*(volatile u8 *)&gang->mode < GANG_MODE_RELAXED)
		cpu->strays = 1;
	if (gang_slot_closed(word))
		interrupt(task->cpu);
	else
		wake_if_idle(task->cpu);
}

SEC("struct_ops/gang_enqueue")
void BPF_PROG(gang_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct gang_sched_stats *stats = own_stats();
	u64 begin = cost_begin(stats, enqueues);
	struct gang_task *task = task_of(p);

	if (stats)
		stats->enqueues++;
	if (!task)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, OTHERS_SLICE, enq_flags);
	else if (is_member(task, p))
		enqueue_member(p, task, enq_flags);
	else
		enqueue_other(p, task, enq_flags);
	cost_end(stats, enqueue, begin);
}

/* A filler that spins for a sibling in this slot comes after all others. */
static u64 filler_rank(const struct gang_slot *slot, const struct gang_state *gang, u16 generation)
{
	return gang->futile == generation ? ~0ULL - 1 : gang_filled(slot, gang);
}

/* Take the member that waits here and whose gang gave the least. Strict ones run with their own. */
__noinline int fill_with_gang(u32 cpu)
{
	struct gang_slot *slot = slot_of(cpu_of(cpu)->domain);
	u16 generation = gang_word_generation(word_of(slot));
	u64 least = ~0ULL, now = bpf_ktime_get_ns();
	u32 i, best = 0;

	bpf_for(i, 0, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1)) {
		u32 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)];
		struct gang_state *gang = gang_of(id);
		u64 rank = filler_rank(slot, gang, generation);

		if (rank >= least || gang_is_strict(gang) || !gang_may_run(gang, now) ||
		    scx_bpf_dsq_nr_queued(queue_of(id, cpu)) <= 0)
			continue;
		least = rank;
		best = id;
	}
	if (!best || !scx_bpf_dsq_move_to_local(queue_of(best, cpu)))
		return false;
	gang_fill(slot, gang_of(best));
	return true;
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

__noinline int row_wanted(u32 index, u64 word, u64 now)
{
	struct gang_slot *slot = slot_of(index);
	u32 column;

	bpf_for(column, 0, slot->columns) {
		u32 id = gang_owner(slot, word, column);

		if (id && gang_wants_slot(gang_of(id), now))
			return true;
	}
	return false;
}

/* Has the slot nobody left to serve? Asked only by a CPU that found nothing of its own. */
static bool spent(u32 index, u32 owner, u64 word, u64 now)
{
	if (owner)
		return !gang_wants_slot(gang_of(owner), now) && !row_wanted(index, word, now);
	return !row_wanted(index, word, now) && !others_wait(index);
}

__noinline int end_early(u32 index, u32 owner, u64 now)
{
	struct gang_slot_stats *stats;

	if (!lead(index, now, true))
		return false;
	count(early_ends);
	note_decision(GANG_DECISION_EARLY, index, owner);
	stats = owner ? bpf_map_lookup_elem(&gang_stats, &owner) : NULL;
	if (stats)
		__sync_fetch_and_add(&stats->ended_early, 1);
	return true;
}

static bool is_runnable(struct task_struct *p)
{
	return p && (p->scx.flags & SCX_TASK_QUEUED);
}

/* Run the owner of this CPU's column; true when the CPU has what it should run. */
__noinline int dispatch_owner(u32 cpu, u32 owner,
			      struct task_struct *prev __arg_trusted __arg_nullable, u64 left)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;
	u64 queue = queue_of(owner, cpu);

	/* a strict gang owns columns where it has nobody, and so no queue */
	if (!owner || !(gang_of(owner)->columns & column_bit(cpu_of(cpu)->column)))
		return false;
	if (task && party_of(task, prev) == owner) {
		/* a sibling on the same column has its turn */
		if ((gang_of(owner)->crowded & column_bit(task->column)) &&
		    scx_bpf_dsq_nr_queued(queue) > 0 && scx_bpf_dsq_move_to_local(queue))
			return true;
		set_slice(prev, member_slice(task, left));
		return true;
	}
	return scx_bpf_dsq_move_to_local(queue);
}

/* May what was running go on where nothing better was found? */
static bool keep(struct task_struct *prev, u64 slice)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;
	struct gang_state *gang = gang_of(party_of(task, prev));

	if (!is_runnable(prev) || gang_is_strict(gang) || !gang_may_run(gang, bpf_ktime_get_ns()))
		return false;
	set_slice(prev, slice);
	return true;
}

/* Give a CPU without an owner something to do: ordinary tasks first, then other gangs. */
static bool fill(u32 cpu, struct task_struct *prev)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;

	bool other = task && !party_of(task, prev);

	if (!(other && comes_first(cpu, task)) && take_other(cpu))
		return true;
	if (other) {
		set_slice(prev, OTHERS_SLICE);
		return true;
	}
	return fill_with_gang(cpu);
}

/* Nothing of this slot runs here: a filler, what another CPU has too much of, or what ran before.
 */
__noinline int dispatch_filler(u32 cpu, u32 owner,
			       struct task_struct *prev __arg_trusted __arg_nullable, u64 length)
{
	if (fill(cpu, prev)) {
		if (owner)
			count(fillers);
		return true;
	}
	return steal(cpu, 0) || keep(prev, length);
}

/* The owner of this CPU by the present word; leads first if the slot is over, or if it is spent. */
__noinline u32 owner_now(u32 cpu, bool early, u64 now)
{
	struct gang_cpu *self = cpu_of(cpu);
	struct gang_slot *slot = slot_of(self->domain);
	u64 word = word_of(slot);
	u32 owner = gang_owner(slot, word, self->column);

	if (gang_slot_closed(word)) {
		if (!early && contested(self->domain))
			lead(self->domain, now, false);
	} else if (early && spent(self->domain, owner, word, now)) {
		end_early(self->domain, owner, now);
	} else if (gang_slot_over(word, now)) {
		lead(self->domain, now, false);
	}
	return gang_owner(slot, word_of(slot), self->column);
}

static void dispatch_grouped(u32 cpu, struct gang_cpu *self, struct task_struct *prev)
{
	struct gang_slot *slot = slot_of(self->domain);
	u64 now = bpf_ktime_get_ns();
	bool strict = slot->strict;
	u32 owner = owner_now(cpu, false, now);
	u64 word = word_of(slot);

	if (strict && !claim_core(cpu, owner))
		return;
	if (!gang_is_strict(gang_of(owner)) && rescue(cpu, self, now))
		return;
	if (dispatch_owner(cpu, owner, prev, gang_slot_left(word, now)))
		return;
	owner = owner_now(cpu, true, now);
	if (word_of(slot) != word) { /* another slot, and perhaps it is for us */
		if (strict && !claim_core(cpu, owner))
			return;
		if (dispatch_owner(cpu, owner, prev, gang_slot_left(word_of(slot), now)))
			return;
	}
	if (!gang_is_strict(gang_of(owner)) && dispatch_filler(cpu, owner, prev, slot->length))
		return;
	if (strict)
		unclaim(cpu, self);
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

		if (!has_strays(self, id, cpu))
			continue;
		self->strays = 1;
		note_decision(GANG_DECISION_STRAY, self->domain, id);
		if (scx_bpf_dsq_move_to_local(queue_of(id, cpu)))
			return true;
	}
	return false;
}

/* A CPU that is in no gang domain. */
__noinline int dispatch_ordinary(u32 cpu, struct task_struct *prev __arg_trusted __arg_nullable)
{
	struct gang_task *task = is_runnable(prev) ? task_of(prev) : NULL;

	if (!(task && comes_first(cpu, task)) && (take_other(cpu) || steal(cpu, 0)))
		return true;
	return keep(prev, OTHERS_SLICE);
}

static void dispatch(u32 cpu, struct task_struct *prev)
{
	struct gang_cpu *self = cpu_of(cpu);

	if (self->strays && take_stray(cpu))
		return;
	if (self->grouped)
		dispatch_grouped(cpu, self, prev);
	else if (!rescue(cpu, self, bpf_ktime_get_ns()))
		dispatch_ordinary(cpu, prev);
}

SEC("struct_ops/gang_dispatch")
void BPF_PROG(gang_dispatch, s32 cpu, struct task_struct *prev)
{
	struct gang_sched_stats *stats = own_stats();
	u64 begin = cost_begin(stats, dispatches);

	if (stats)
		stats->dispatches++;
	dispatch(cpu, prev);
	note_empty(cpu);
	cost_end(stats, dispatch, begin);
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
	u32 owner, party;

	if (!task)
		return;
	if (now - task->weighed > WEIGH_NS)
		weigh(p, task, now);
	party = party_of(task, p);
	cpu->current = party;
	cpu->start = now;
	cpu->since = now;
	if (cpu->grouped && slot_of(cpu->domain)->strict)
		claim_running(id, p->flags & PF_KTHREAD ? NOBODY : party);
	if (!party) {
		count_load(task, id);
		if (cpu->vclock < task->vtime)
			cpu->vclock = task->vtime;
		return;
	}
	gang = gang_of(party);
	slot = slot_of(gang->domain);
	bit = column_bit(task->column);
	__sync_fetch_and_or(&gang->ready, bit);
	__sync_fetch_and_or(&gang->running, bit);
	note_costart(party, now);
	owner = gang_owner(slot, word_of(slot), cpu->column);
	if (!cpu->grouped || !owner || owner == party)
		return;
	if (gang_waits_for(gang_of(owner), gang))
		set_slice(p, GANG_FILLER_NS);
	else if (gang_out_of_place(gang_of(owner), cpu->column, false))
		interrupt(id);
}

/* A member blocks: its column waits for nobody, unless a sibling shares it. */
static void member_blocks(struct gang_task *task)
{
	struct gang_state *gang = gang_of(task->gang);
	struct gang_sched_stats *stats = own_stats();
	u64 bit = column_bit(task->column), now = bpf_ktime_get_ns();
	u64 begin = cost_begin(stats, dispatches);
	bool shared = (gang->crowded & bit) &&
		      ((gang->running & bit) ||
		       scx_bpf_dsq_nr_queued(queue_of(task->gang, task->cpu)) > 0);

	gang_note_change(gang, now);
	gang_note_stint(gang, now - task->woke, gang->together - task->together);
	if (!shared) {
		__sync_fetch_and_and(&gang->ready, ~bit);
		note_costart(task->gang, now);
	}
	cost_end(stats, dequeue, begin);
}

SEC("struct_ops/gang_stopping")
void BPF_PROG(gang_stopping, struct task_struct *p, bool runnable)
{
	struct gang_task *task = task_of(p);
	u32 id = scx_bpf_task_cpu(p);
	struct gang_cpu *cpu = cpu_of(id);
	u64 now = bpf_ktime_get_ns();
	u32 party = cpu->current;

	charge(id, now);
	cpu->start = 0;
	cpu->left = now;
	cpu->current = NOBODY;
	if (cpu->grouped && slot_of(cpu->domain)->strict)
		claim_stopping(id, cpu);
	if (!task)
		return;
	if (!party)
		charge_ordinary(cpu, task, now);
	if (!runnable || party)
		drop_load(task);
	if (!task->gang)
		return;
	__sync_fetch_and_and(&gang_of(task->gang)->running, ~column_bit(task->column));
	if (!runnable)
		member_blocks(task);
}

/* A task gets another scheduling class; one that was queued was not stopped. */
SEC("struct_ops/gang_disable")
void BPF_PROG(gang_disable, struct task_struct *p)
{
	struct gang_task *task = task_of(p);

	if (task)
		drop_load(task);
	if (task && task->gang && (gang_of(task->gang)->ready & column_bit(task->column)))
		member_blocks(task);
}

/*
 * PLE: the spinning member @task asks to run its sibling. In the slot of their gang something took
 * the sibling's CPU for a moment: it gets it back. In another slot the spinner is a filler whose
 * spinning is of no use to anybody: its CPU goes to others. When the sibling runs, spinning is
 * right.
 */
static bool yield_to_sibling(struct task_struct *from, struct gang_task *task,
			     struct gang_task *sibling)
{
	struct gang_state *gang = gang_of(task->gang);
	struct gang_slot *slot = slot_of(gang->domain);
	u64 word = word_of(slot);

	count(yields);
	if ((gang->running & column_bit(sibling->column)) || sibling->column == task->column)
		return false;
	if (gang_owner(slot, word, sibling->column) == task->gang) {
		interrupt(sibling->cpu);
	} else {
		gang->futile = gang_word_generation(word);
		set_slice(from, 0);
	}
	count(yields_hit);
	note_decision(GANG_DECISION_YIELD, gang->domain, task->gang);
	return true;
}

SEC("struct_ops/gang_yield")
bool BPF_PROG(gang_yield, struct task_struct *from, struct task_struct *to)
{
	struct gang_task *task = task_of(from), *other;

	if (!to) {
		if (task && !is_member(task, from))
			yield_other(from, task);
		set_slice(from, 0);
		return false;
	}
	other = task_of(to);
	return task && other && is_member(task, from) && task->gang == other->gang &&
	       yield_to_sibling(from, task, other);
}

/* A higher class takes the CPU: what was to run there is queued again, where others can see it. */
SEC("struct_ops/gang_cpu_release")
void BPF_PROG(gang_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
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
		cpu_of(i)->claim = NOBODY;
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

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.select_cpu = (void *)gang_select_cpu,
	.enqueue = (void *)gang_enqueue,
	.dispatch = (void *)gang_dispatch,
	.running = (void *)gang_running,
	.stopping = (void *)gang_stopping,
	.disable = (void *)gang_disable,
	.yield = (void *)gang_yield,
	.cpu_release = (void *)gang_cpu_release,
	.dump = (void *)gang_dump,
	.dump_cpu = (void *)gang_dump_cpu,
	.dump_task = (void *)gang_dump_task,
	.init_task = (void *)gang_init_task,
	.init = (void *)gang_init,
	.exit = (void *)gang_exit,
	/* .flags: by whoever loads this, from the kernel's own numbers */
	.timeout_ms = 10000,
	.name = "gangd",
};
