// SPDX-License-Identifier: GPL-2.0
/*
 * The trace: what some threads do, event by event, while `gangctl trace` looks.
 *
 * Events of one CPU are in their order; the reader sorts those of all CPUs. An event that finds the
 * ring full is counted, and lost. The scheduler writes its turns into a ring of its own,
 * "decisions", which it shares with this object: the CPU that switches next copies what is new.
 * While no scheduler is loaded, that map is empty, and so is "members".
 *
 * Cost, while the trace is loaded and never else: two hash lookups at each switch of the host, one
 * at each wakeup and exit, and some 130 ns for each event.
 */
#include "gang_abi.h"
#include "kernel/kernel.bpf.h"
#include "kernel/pause.bpf.h"
#include "state/shared.bpf.h"

char _license[] SEC("license") = "GPL";

static const u32 zero;

/* threads that are traced, with their process */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GANG_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u32);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

u32 copied; /* decisions */

static bool is_traced(u32 tid, u32 tgid)
{
	const u32 *process = bpf_map_lookup_elem(&threads, &tid);

	return process && *process == tgid;
}

static void count_lost(u64 count)
{
	u64 *value = bpf_map_lookup_elem(&lost, &zero);

	if (value)
		__sync_fetch_and_add(value, count);
}

static void put(const struct trace_event *event)
{
	if (bpf_ringbuf_output(&events, (void *)event, sizeof(*event), BPF_RB_NO_WAKEUP))
		count_lost(1);
}

static void put_thread(u32 tid, u32 kind)
{
	struct trace_event event = {
		.time = bpf_ktime_get_ns(),
		.id = tid,
		.cpu = bpf_get_smp_processor_id(),
		.kind = kind,
	};

	put(&event);
}

static void put_turn(const struct gang_decision *turn)
{
	struct trace_event event = {
		.time = turn->time,
		.id = turn->gang,
		.length_us = turn->length_us,
		.cpu = turn->cpu,
		.kind = TRACE_TURN,
	};

	put(&event);
}

/*
 * Copy the turns that are new, on one CPU at a time; the ring holds more turns than the CPUs open
 * between two switches.
 */
static void put_turns(void)
{
	struct gang_decisions *ring = bpf_map_lookup_elem(&decisions, &zero);
	u32 from = *(volatile u32 *)&copied, next, i;

	if (!ring)
		return;
	next = *(volatile u32 *)&ring->next;
	if (next == from || __sync_val_compare_and_swap(&copied, from, next) != from)
		return;
	if (next - from > GANG_DECISIONS) {
		if (from) /* otherwise the turns are older than the trace */
			count_lost(next - from - GANG_DECISIONS);
		from = next - GANG_DECISIONS;
	}
	for (i = 0; i < GANG_DECISIONS; i++) {
		const struct gang_decision *one = &ring->last[(from + i) % GANG_DECISIONS];

		if (from + i == next)
			break;
		if (one->kind == GANG_DECISION_TURN)
			put_turn(one);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(trace_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	put_turns();
	if (is_traced(prev->pid, prev->tgid))
		put_thread(prev->pid, preempt || !prev_state ? TRACE_WAIT : TRACE_SLEEP);
	if (is_traced(next->pid, next->tgid))
		put_thread(next->pid, TRACE_RUN);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(trace_wakeup, struct task_struct *p)
{
	if (is_traced(p->pid, p->tgid))
		put_thread(p->pid, TRACE_WAKE);
	return 0;
}

static void put_current(u32 kind)
{
	u64 id = bpf_get_current_pid_tgid();

	if (is_traced((u32)id, id >> 32))
		put_thread((u32)id, kind);
}

SEC("tracepoint/kvm/kvm_exit")
int trace_exit(struct trace_event_raw_kvm_exit *ctx)
{
	if (is_pause(ctx->isa, basic_reason(ctx->isa, ctx->exit_reason)))
		put_current(TRACE_PAUSE);
	return 0;
}

SEC("fentry/yield_to")
int BPF_PROG(trace_yield)
{
	put_current(TRACE_YIELD);
	return 0;
}
