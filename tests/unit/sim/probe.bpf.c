// SPDX-License-Identifier: Apache-2.0
/*
 * A scheduler that writes down how it is called: one queue, first in, first out. What it does else
 * is chosen by defines. Only ever compiled for the simulator.
 */
#include "kernel/compat.bpf.h"
#include "model/describe.h"

#define KICK_IDLE 1 /* SCX_KICK_IDLE */

#ifndef SLICE
#define SLICE 20000000
#endif
#ifndef OPS_FLAGS
#define OPS_FLAGS 0
#endif
#define QUEUE 7

enum kind {
	INIT = 1,
	CGROUP_INIT,
	INIT_TASK,
	ENABLE,
	SET_WEIGHT,
	DISABLE,
	EXIT_TASK,
	SELECT,
	RUNNABLE,
	ENQUEUE,
	DISPATCH,
	RUNNING,
	STOPPING,
	QUIESCENT,
	YIELD,
	TICK,
	TIMER,
};

struct event {
	u64 now;
	u64 flags;
	u32 kind;
	s32 pid;
	u32 cpu;
	u32 pad;
};

struct alarm {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

static struct event events[128];
static u32 used;

static void note(u32 kind, const struct task_struct *p, u64 flags)
{
	if (used < 128)
		events[used++] = (struct event){bpf_ktime_get_ns(), flags, kind, p ? p->pid : 0,
						bpf_get_smp_processor_id()};
}

SEC("struct_ops/probe_select_cpu")
s32 BPF_PROG(probe_select_cpu, struct task_struct *p, s32 prev, u64 flags)
{
	bool idle = false;
	s32 cpu = prev;

	note(SELECT, p, flags);
#ifdef DIRECT
	cpu = scx_bpf_select_cpu_dfl(p, prev, flags, &idle);
	if (idle)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, SLICE, 0);
#endif
	return cpu;
}

SEC("struct_ops/probe_enqueue")
void BPF_PROG(probe_enqueue, struct task_struct *p, u64 flags)
{
	note(ENQUEUE, p, flags);
#if defined(LOST)
	return;
#elif defined(ROUND)
	/* nobody runs there, and the CPU asks again at once */
	scx_bpf_kick_cpu(bpf_get_smp_processor_id(), 0);
	return;
#elif defined(MIXED)
	if (p->pid & 1) {
		scx_bpf_dsq_insert_vtime(p, QUEUE, SLICE, 1, flags);
		return;
	}
#elif defined(NOWHERE)
	scx_bpf_dsq_insert(p, 99, SLICE, flags);
	return;
#elif defined(ELSEWHERE)
	if ((flags & ENQ_WAKEUP) && p->nr_cpus_allowed > 1) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL_ON | 1, SLICE, flags | ENQ_PREEMPT);
		return;
	}
#elif defined(LOCAL)
	if (flags & ENQ_WAKEUP) {
		scx_bpf_dsq_insert(p, DSQ_LOCAL, SLICE, flags | LOCAL);
		return;
	}
#endif
	scx_bpf_dsq_insert(p, QUEUE, SLICE, flags);
#ifdef TWICE
	scx_bpf_dsq_insert(p, QUEUE, SLICE, flags);
#endif
}

SEC("struct_ops/probe_dispatch")
void BPF_PROG(probe_dispatch, s32 cpu, struct task_struct *prev)
{
	note(DISPATCH, prev, prev ? prev->scx.flags & SCX_TASK_QUEUED : 0);
#ifdef ROUND
	scx_bpf_kick_cpu(cpu, 0);
#endif
#ifdef KEEP
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		set_slice(prev, SLICE);
#endif
	scx_bpf_dsq_move_to_local(QUEUE);
}

SEC("struct_ops/probe_yield")
bool BPF_PROG(probe_yield, struct task_struct *from, struct task_struct *to)
{
	note(YIELD, from, to ? to->pid : 0);
#ifdef GIVE
	set_slice(from, 0);
	return true;
#endif
	return false;
}

#define NOTER(name, kind)                                                                          \
	SEC("struct_ops/probe_" #name)                                                             \
	void BPF_PROG(probe_##name, struct task_struct *p, u64 flags)                              \
	{                                                                                          \
		note(kind, p, flags);                                                              \
	}
NOTER(runnable, RUNNABLE)
NOTER(quiescent, QUIESCENT)

#define SILENT_NOTER(name, kind)                                                                   \
	SEC("struct_ops/probe_" #name)                                                             \
	void BPF_PROG(probe_##name, struct task_struct *p)                                         \
	{                                                                                          \
		note(kind, p, 0);                                                                  \
	}
SILENT_NOTER(running, RUNNING)
SILENT_NOTER(enable, ENABLE)
SILENT_NOTER(disable, DISABLE)
SILENT_NOTER(exit_task, EXIT_TASK)

SEC("struct_ops/probe_stopping")
void BPF_PROG(probe_stopping, struct task_struct *p, bool runnable)
{
	note(STOPPING, p, runnable);
#ifdef STOPPING_INSERTS
	scx_bpf_dsq_insert(p, QUEUE, SLICE, 0);
#elif defined(STOPPING_MOVES)
	scx_bpf_dsq_move_to_local(QUEUE);
#elif defined(STOPPING_KICKS)
	scx_bpf_kick_cpu(0, KICK_IDLE | KICK_PREEMPT);
#endif
}

SEC("struct_ops/probe_set_weight")
void BPF_PROG(probe_set_weight, struct task_struct *p, u32 weight)
{
	note(SET_WEIGHT, p, weight);
}

SEC("struct_ops/probe_init_task")
s32 BPF_PROG(probe_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	note(INIT_TASK, p, args->fork);
	return 0;
}

SEC("struct_ops/probe_cgroup_init")
s32 BPF_PROG(probe_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	note(CGROUP_INIT, NULL, args->weight);
	return 0;
}

static int on_alarm(void *map, u32 *key, struct alarm *alarm)
{
	note(TIMER, NULL, *key);
#ifdef KICK
	scx_bpf_kick_cpu(0, KICK);
#endif
	return 0;
}

SEC("struct_ops.s/probe_init")
s32 BPF_PROG(probe_init)
{
	u32 key = 1;
	struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);

	note(INIT, NULL, 0);
#ifdef ALARM
	bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&alarm->timer, on_alarm);
	bpf_timer_start(&alarm->timer, ALARM, 0);
#endif
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.select_cpu = (void *)probe_select_cpu,
	.enqueue = (void *)probe_enqueue,
	.dispatch = (void *)probe_dispatch,
	.runnable = (void *)probe_runnable,
	.running = (void *)probe_running,
	.stopping = (void *)probe_stopping,
	.quiescent = (void *)probe_quiescent,
	.yield = (void *)probe_yield,
	.enable = (void *)probe_enable,
	.disable = (void *)probe_disable,
	.set_weight = (void *)probe_set_weight,
	.init_task = (void *)probe_init_task,
	.exit_task = (void *)probe_exit_task,
	.cgroup_init = (void *)probe_cgroup_init,
	.init = (void *)probe_init,
	.timeout_ms = 500,
	.name = "probe",
};

int shim_prepare(const struct sim_config *config,
		 void (*set_const)(const volatile void *, u32, u32))
{
	gang_ops.flags = OPS_FLAGS;
	return 0;
}

/* Most tests do not ask for what was written down while it was enabled. */
int shim_order(const struct sim_description *sim)
{
#ifndef FROM_THE_START
	used = 0;
#endif
	return 0;
}

void shim_collect(const struct sim_description *sim, const struct sim_answer *answer)
{
	__builtin_memcpy(answer->stats, events, used * sizeof(events[0]));
}
