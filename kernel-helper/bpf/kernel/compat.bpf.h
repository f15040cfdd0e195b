/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sched_ext as the programs see it. No other BPF file knows that kernels differ.
 *
 * The programs read enum values from the running kernel's BTF. A function (kfunc) that only some
 * kernels have is weak, and a program asks for its presence, not for the version. A kernel must
 * have the other functions; daemon/gangd/actuate/preflight.py looks for them before anything is
 * loaded, so that a user reads a sentence instead of a log.
 */
#ifndef KERNEL_COMPAT_BPF_H
#define KERNEL_COMPAT_BPF_H

#include "kernel/kernel.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

/* v6.17: the limits */
struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
};

struct scx_cpu_release_args {
	int reason;
};

struct scx_dump_ctx {
	bool idle;
};

#pragma clang attribute pop

/*
 * The kernel matches members by name when the scheduler is loaded; the members that we do not use
 * are left out.
 */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*disable)(struct task_struct *p);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	void (*dump)(struct scx_dump_ctx *ctx);
	void (*dump_cpu)(struct scx_dump_ctx *ctx, s32 cpu, bool idle);
	void (*dump_task)(struct scx_dump_ctx *ctx, struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us,
				     u64 burst_us);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

enum scx_enq_flags___gang {
	SCX_ENQ_WAKEUP___gang = 1,
	SCX_ENQ_CPU_SELECTED___gang = 1 << 10,
	SCX_ENQ_PREEMPT___gang = 1ULL << 32,
	SCX_ENQ_IMMED___gang = 1ULL << 33,
	SCX_ENQ_REENQ___gang = 1ULL << 40,
};
enum scx_wake_flags___gang {
	SCX_WAKE_SYNC___gang = 16,
};
enum scx_kick_flags___gang {
	SCX_KICK_PREEMPT___gang = 2,
};
enum scx_dsq_iter_flags___gang {
	SCX_DSQ_ITER_REV___gang = 1 << 16,
};
enum scx_dsq_id_flags___gang {
	SCX_DSQ_LOCAL___gang = (1ULL << 63) | 2,
	SCX_DSQ_LOCAL_ON___gang = (1ULL << 63) | (1ULL << 62),
};

#define ENQ_WAKEUP bpf_core_enum_value(enum scx_enq_flags___gang, SCX_ENQ_WAKEUP___gang)
/* the kernel called select_cpu(), which it does not for a task that has not left its CPU yet */
#define ENQ_CPU_SELECTED bpf_core_enum_value(enum scx_enq_flags___gang, SCX_ENQ_CPU_SELECTED___gang)
#define ENQ_PREEMPT	 bpf_core_enum_value(enum scx_enq_flags___gang, SCX_ENQ_PREEMPT___gang)
/* v7.1: a task that cannot run at once is queued again */
#define ENQ_IMMED bpf_core_enum_value(enum scx_enq_flags___gang, SCX_ENQ_IMMED___gang)
#define ENQ_REENQ bpf_core_enum_value(enum scx_enq_flags___gang, SCX_ENQ_REENQ___gang)
/* the waker is about to sleep */
#define WAKE_SYNC    bpf_core_enum_value(enum scx_wake_flags___gang, SCX_WAKE_SYNC___gang)
#define KICK_PREEMPT bpf_core_enum_value(enum scx_kick_flags___gang, SCX_KICK_PREEMPT___gang)
#define ITER_REV     bpf_core_enum_value(enum scx_dsq_iter_flags___gang, SCX_DSQ_ITER_REV___gang)
#define DSQ_LOCAL    bpf_core_enum_value(enum scx_dsq_id_flags___gang, SCX_DSQ_LOCAL___gang)
#define DSQ_LOCAL_ON bpf_core_enum_value(enum scx_dsq_id_flags___gang, SCX_DSQ_LOCAL_ON___gang)

extern const struct rq runqueues __ksym;
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
			   bool *is_idle) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data_size) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
u32 scx_bpf_reenqueue_local(void) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, s32 level) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
void(bpf_rcu_read_lock)(void) __ksym;
void(bpf_rcu_read_unlock)(void) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
/* v6.19: writing p->scx.slice directly is deprecated in favour of this */
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
/* v7.1: takes a hidden argument; where a kernel's BTF shows it, no program can call the function */
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym __weak;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym __weak;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym __weak;
/* v6.13: the first name of each pair; a kernel before has the second name */
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			      u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			    u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
		      u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			       u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				     u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;

/* The verifier drops the half that this kernel does not have; preflight.py has the same pairs. */
#define RENAMED(name, former, ...) (bpf_ksym_exists(name) ? name(__VA_ARGS__) : former(__VA_ARGS__))
#define scx_bpf_dsq_insert(...)	   RENAMED(scx_bpf_dsq_insert, scx_bpf_dispatch, __VA_ARGS__)
#define scx_bpf_dsq_insert_vtime(...)                                                              \
	RENAMED(scx_bpf_dsq_insert_vtime, scx_bpf_dispatch_vtime, __VA_ARGS__)
#define scx_bpf_dsq_move_to_local(...)                                                             \
	RENAMED(scx_bpf_dsq_move_to_local, scx_bpf_consume, __VA_ARGS__)
#define scx_bpf_dsq_move(...) RENAMED(scx_bpf_dsq_move, scx_bpf_dispatch_from_dsq, __VA_ARGS__)
#define scx_bpf_dsq_move_vtime(...)                                                                \
	RENAMED(scx_bpf_dsq_move_vtime, scx_bpf_dispatch_vtime_from_dsq, __VA_ARGS__)
#define scx_bpf_dsq_move_set_slice(...)                                                            \
	RENAMED(scx_bpf_dsq_move_set_slice, scx_bpf_dispatch_from_dsq_set_slice, __VA_ARGS__)
#define scx_bpf_dsq_move_set_vtime(...)                                                            \
	RENAMED(scx_bpf_dsq_move_set_vtime, scx_bpf_dispatch_from_dsq_set_vtime, __VA_ARGS__)

/* v6.17: the kernel tells of cpu.max; on a kernel before, a tick looks */
#define TELLS_LIMITS bpf_core_field_exists(struct scx_cgroup_init_args, bw_quota_us)

/*
 * Set before load: no CPU can be kicked here, so a task that should run on a CPU is moved to it.
 * The variable is a constant, so that the verifier drops the half that this kernel cannot run.
 */
const volatile bool push;

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

#endif /* KERNEL_COMPAT_BPF_H */
