// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler: a fair class that serves every task of the host, and turns on top, in which the
 * vCPUs of a marked guest run together.
 *
 *   state            tasks, CPUs, gang domains, gangs, groups
 *   stats            counters, and its own time
 *   vtime            virtual time: the weighted mean of the runnable tasks
 *   weight           flat weights, from the weights of groups and of the active tasks in them
 *   deadline         how much a task asks for; its deadline
 *   bandwidth        cpu.max
 *   runnable         a task joins a clock, and leaves it: where it begins
 *   delayed          a task that sleeps ahead of its clock stays counted
 *   account          what a task pays
 *   kick             interrupting CPUs
 *   strict           cores that a strict gang has to itself
 *   queue            the next task, and the CPU that a woken task may take
 *   turn             when siblings run together
 *   dispatch         a CPU asks for a task
 *   wake             a task becomes runnable: where it runs or waits
 *   run              a task comes on CPU, and goes
 *   balance          which cache a gang is in
 *   yield            directed yields
 *   cgroup           groups that come, go and change
 *   control          the daemon's requests
 *   starvation       tasks that wait for too long
 *   cookie           core scheduling, which is refused
 *   dump             lines that the kernel prints
 *
 * A task is counted in its clock when it is queued, or when it runs while others wait; it leaves
 * the clock when it stops. While nobody waits nobody is counted. One lock an operation.
 */
#include "account.bpf.h"
#include "balance.bpf.h"
#include "cgroup.bpf.h"
#include "cookie.bpf.h"
#include "dispatch.bpf.h"
#include "queue.bpf.h"
#include "run.bpf.h"
#include "turn.bpf.h"
#include "wake.bpf.h"
#include "starvation.bpf.h"
#include "yield.bpf.h"
#include "control.bpf.h"
#include "dump.bpf.h"

char _license[] SEC("license") = "GPL";

SEC("struct_ops/gang_select_cpu")
s32 BPF_PROG(gang_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 domain = cpu_of(prev_cpu)->domain;
	bool crowded = is_crowded(domain), idle = false;
	struct fair_task *t;
	s32 cpu = prev_cpu;

	if (quotas) {
		t = task_of(p);
		if (t && throttled_by(t))
			return prev_cpu;
	}
	if (!crowded && !is_full_with(domain, 0)) { /* else there is none to look for */
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
	/* its waker makes room, and a switch for each message is what a crowd has no time for */
	t->patient = crowded && (wake_flags & WAKE_SYNC);
	return t->patient ? cpu : select_busy(p, t, cpu, wake_flags);
}

static __always_inline void take_in(struct task_struct *p, u64 flags)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	struct arrival a = {.flags = flags, .cpu = cpu, .domain = c->domain};

	/* of a task that real time preempts cpu_release() is running, too */
	if (!t || is_fixed(p, 1 + !!(flags & ENQ_REENQ))) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, FAIR_SLICE, flags);
		return;
	}
	a.now = bpf_ktime_get_ns();
	if (t->delayed)
		requeue_delayed(t, a.now);
	follow_group(p, t);
	a.clock = clock_at(a.domain, a.now);
	/* those that run, with the task that just stopped here; there is no other domain to look in
	 */
	a.full = is_full_with(a.domain, !flags && !c->start);
	enqueue(p, t, &a);
}

SEC("struct_ops/gang_enqueue")
void BPF_PROG(gang_enqueue, struct task_struct *p, u64 flags)
{
	begin_sample(enqueues);
	take_in(p, flags);
	end_sample(enqueue);
}

SEC("struct_ops/gang_dispatch")
void BPF_PROG(gang_dispatch, s32 cpu, struct task_struct *prev)
{
	dispatch(cpu, prev);
	end_sample(dispatch);
}

/* ---- running, stopping, tick ------------------------------------------------ */

/* The kernel sees slices at its ticks only: a timer ends short ones, and turns on lent CPUs. */
static void arm_slice(u32 cpu, struct fair_cpu *c, u64 slice, u64 now)
{
	u64 at = 0;

	if (c->lent && in_turn(c, now))
		at = c->turn == c->gang ? c->until : 0;
	else if (slice < FAIR_SLICE / 2)
		at = now + slice;
	c->short_end = 0;
	if (at)
		arm_timer(cpu, at);
}

static int on_slice(void *map, u32 *key, struct fair_timer *timer)
{
	struct fair_cpu *c = cpu_of(*key);

	if (c->short_end && fair_after(bpf_ktime_get_ns(), c->short_end) >= 0) {
		c->short_end = 0;
		interrupt(*key);
	}
	return 0;
}

/* One of those for whom the turn was opened is on CPU; the last one ends the start. */
static void arrive_in_turn(u32 gang, u64 now)
{
	struct fair_gang *g = gang_of(gang);
	s32 awaited = g->awaited > 0 ? __sync_fetch_and_add(&g->awaited, -1) : 0;

	if (awaited > 0)
		count_of(gang, seats_had, 1);
	if (awaited == 1)
		note_whole(gang, fair_since(g->opened, now));
}

SEC("struct_ops/gang_running")
void BPF_PROG(gang_running, struct task_struct *p)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns(), slice;
	bool alone;

	if (!t)
		return;
	if (t->delayed)
		requeue_delayed(t, now);
	follow_group(p, t);
	catch_loose(t);
	update_mask(p, t, c->domain);
	alone = !t->on && !t->bound && !t->gang && !waits_in(c->domain);
	if (alone)
		set_next_alone(p, t, c->domain, now);
	else
		set_next(p, t, cpu, c->domain, now);
	c->w = t->w;
	c->v = v_of(t);
	c->start = c->came = now;
	c->gang = t->gang;
	c->bound = t->bound;
	c->pid = p->pid;
	c->exempt = !!(p->flags & PF_KTHREAD);
	c->buddy = 0;
	if (alone && !quotas && !strict_gangs) {
		c->ask = fair_request(t->burst, FAIR_SLICE);
		c->plain = t->burst <= FAIR_SLICE ? PLAIN_BRIEF : PLAIN_LONG;
		c->short_end = 0;
		set_slice(p, turn_ns); /* who comes is seen by enqueue() and tick() */
		return;
	}
	if (turn_is_open(t->gang, now)) {
		if (!(c->lent && in_turn(c, now)))
			give_turn(cpu, t->gang, false);
		arrive_in_turn(t->gang, now);
	}
	c->ask = ask_of(t, c->domain, now);
	c->plain = plain_of(t, now);
	slice = slice_of(cpu, t, now);
	set_slice(p, slice);
	arm_slice(cpu, c, slice, now);
	if (!strict_gangs || c->exempt)
		return;
	if (!stays_on_core(cpu, t->gang, now)) {
		count(core_shared);
		evict(cpu);
	}
	if (beside(cpu)->outdone)
		tell_core(cpu, t->gang);
}

/* How often of late something happened, of the last seven times. */
static void learn(u8 *often, bool happened)
{
	if (happened)
		*often += *often < 7;
	else
		*often -= *often > 0;
}

static __always_inline void stop(struct task_struct *p, bool runnable)
{
	struct fair_task *t = task_of(p);
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *c = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns(), ns = now - c->start, in = 0;
	bool counted;

	if (!t || !c->start)
		return;
	counted = t->on;
	if (counted)
		in = put_prev(t, ns, !runnable, now);
	else
		put_prev_alone(t, ns);
	note_ran(t, ns);
	note_member_ran(c, t, ns, now);
	if (strict_gangs && holds_idle(cpu, t->gang)) {
		set_v(t, v_of(t) + fair_virtual(ns, t->w));
		count_of(t->gang, forced_idle_ns, ns);
	}
	if (counted && t->clock & BOUND_CLOCK) {
		__sync_fetch_and_add(&domain_of(t->domain)->bound_running, -1);
		level_bound(cpu, now, false);
	}
	/* who is next does not pass dispatch(): that is said before who was here is not any more */
	if (strict_gangs && !c->core_claim && scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu) > 0)
		c->core_claim = CLAIM_ANY;
	c->start = 0;
	c->gang = 0;
	c->pid = 0;
	c->short_end = 0;
	if (strict_gangs)
		tell_core(cpu, t->gang);
	if (runnable)
		return;
	if (counted) {
		if (t->on) {
			delay_dequeue(t, cpu, in, now);
		} else {
			note_bound(t->clock, t->domain, -1, -t->w);
			dequeue_groups(t);
		}
		if (t->gang)
			note_idle(t->gang, now);
	}
	t->throttled = 0;
	learn(&t->hands, t->woke_kin && fair_since(t->woke, now) < FAIR_LEAST);
	learn(&t->passes, !t->woke_kin && fair_since(t->woke, now) < FAIR_LEAST);
	note_sleep(t, now);
}

SEC("struct_ops/gang_stopping")
void BPF_PROG(gang_stopping, struct task_struct *p, bool runnable)
{
	begin_sample(stops);
	stop(p, runnable);
	end_sample(stop);
}

/* A task that is not ours any more while it waits: another class, or the end of it. */
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

SEC("struct_ops/gang_tick")
void BPF_PROG(gang_tick, struct task_struct *p)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *self = cpu_of(cpu);
	u32 domain = self->domain;
	struct choice best = {.free = DOMAIN_CPUS, .domain = domain, .cpu = cpu};
	struct fair_task *t = task_of(p);
	u64 now = bpf_ktime_get_ns();
	bool turn;

	if (!t || !self->start)
		return;
	read_groups(p);
	charge(cpu, t, now);
	balance(domain, now);
	if (!waits_in(domain))
		return;
	if (running_in(domain) < domain_of(domain)->cpus)
		wake_idle(domain);
	best.now = now;
	best.clock = clock_at(domain, now);
	choose(cpu, &best);
	/* a turn does without the CPU of a task that is owed it for a moment */
	if (best.open && ends_request(self->plain, t->bound, v_of(t), t->w, best.clock))
		return;
	turn = turn_is_open(t->gang, now);
	if (turn && turn_is_lent(gang_of(t->gang)) && !best.brief)
		return; /* short, and paid for by the budget */
	if (best.any && best.eligible && (!best.gang || best.gang != t->gang) &&
	    fair_after(deadline_now(self, now), best.deadline) >
		    (s64)fair_virtual(
			    !best.brief && !best.open && turn ? turn_most_in(domain) : GRAIN, t->w))
		set_slice(p, 0);
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

SEC("struct_ops/gang_set_cpumask")
void BPF_PROG(gang_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (t)
		t->allowed = 0;
}

/* Real time took the CPU: whatever was sent there is queued again. */
SEC("struct_ops/gang_cpu_release")
void BPF_PROG(gang_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	cpu_of(cpu)->core_claim = 0;
	scx_bpf_reenqueue_local();
}

/* ---- tasks and the scheduler come ------------------------------------------- */

/* A child begins with what its parent has had, and is expected to run as it does. */
static void inherit(struct fair_task *t)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct fair_task *of = parent ? bpf_task_storage_get(&tasks, parent, 0, 0) : NULL;
	const struct fair_cpu *c;
	u64 start, ran;

	if (!of)
		return;
	c = cpu_of(scx_bpf_task_cpu(parent));
	if (!of->on && c->pid != (u32)parent->pid)
		return;
	start = c->start;
	ran = start ? bpf_ktime_get_ns() - start : 0;
	t->v = v_of(of) + fair_virtual(ran, of->w);
	t->clock = t->domain = of->domain;
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
	bpf_rcu_read_lock(); /* else a program that sleeps may not follow args->cgroup */
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
	bpf_for(i, 0, GANG_MAX_DOMAINS) {
		struct fair_timer *timer = bpf_map_lookup_elem(&watch_timers, &i);

		if (scx_bpf_create_dsq(domain_queue(i), -1))
			return -ENOMEM;
		if (!timer || bpf_timer_init(&timer->timer, &watch_timers, CLOCK_MONOTONIC))
			return -EINVAL;
		bpf_timer_set_callback(&timer->timer, on_watch);
		if (domain_of(i)->cpus)
			bpf_timer_start(&timer->timer, WATCH_EVERY, 0);
	}
	bpf_for(i, HELP_FIRST, HELP_FIRST + HELP_MOST)
		if (scx_bpf_create_dsq(gang_queue(i), -1))
			return -ENOMEM;
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.select_cpu = (void *)gang_select_cpu,
	.enqueue = (void *)gang_enqueue,
	.dispatch = (void *)gang_dispatch,
	.tick = (void *)gang_tick,
	.running = (void *)gang_running,
	.stopping = (void *)gang_stopping,
	.disable = (void *)gang_disable,
	.yield = (void *)gang_yield,
	.set_cpumask = (void *)gang_set_cpumask,
	.cpu_release = (void *)gang_cpu_release,
	.init_task = (void *)gang_init_task,
	.cgroup_init = (void *)gang_cgroup_init,
	.cgroup_exit = (void *)gang_cgroup_exit,
	.cgroup_set_weight = (void *)gang_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)gang_cgroup_set_bandwidth,
	.dump = (void *)gang_dump,
	.dump_cpu = (void *)gang_dump_cpu,
	.dump_task = (void *)gang_dump_task,
	.init = (void *)gang_init,
	.exit = (void *)gang_exit,
	.timeout_ms = 10000,
	.name = "gangd",
};
