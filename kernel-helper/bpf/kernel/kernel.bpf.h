/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types and functions that the BPF programs touch.
 *
 * They are written by hand instead of generated as a vmlinux.h: libbpf relocates every access
 * against the running kernel's BTF when it loads a program (CO-RE), so only names matter here, not
 * layouts. One object therefore serves every kernel, and building needs no kernel headers.
 */
#ifndef KERNEL_KERNEL_BPF_H
#define KERNEL_KERNEL_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true  1
#define false 0
#define NULL  ((void *)0)
#define GANG_TYPES_DEFINED

/* include/uapi/linux/bpf.h: what the maps and helpers here use */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
#define BPF_NOEXIST		       1
#define BPF_F_NO_PREALLOC	       1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_NO_WAKEUP	       1
#define BPF_F_TIMER_ABS		       1
#define CLOCK_MONOTONIC		       1

/* include/uapi/asm-generic/errno-base.h */
#define ENOMEM 12
#define EBUSY  16
#define EEXIST 17
#define EINVAL 22
#define ENOSPC 28

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
};

struct cfs_bandwidth {
	s64 period;
	u64 quota;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct task_group {
	struct cgroup_subsys_state css;
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	int static_prio;
	unsigned int policy;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct task_group *sched_task_group;
	struct sched_ext_entity scx;
	unsigned long core_cookie; /* CONFIG_SCHED_CORE */
};

/* kernel/sched/sched.h */
struct rt_rq {
	unsigned int rt_nr_running;
};

struct rq {
	struct rt_rq rt;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

/* include/linux/rcuwait.h */
struct rcuwait {
	struct task_struct *task;
};

/* include/linux/kvm_host.h; preempted: the vCPU's thread lost its CPU, and did not give it up */
struct kvm_vcpu {
	bool preempted;
};

struct trace_entry {
	unsigned short type;
};

/* arch/x86/kvm/trace.h, TRACE_EVENT_KVM_EXIT(kvm_exit); the kvm module's BTF has it */
struct trace_event_raw_kvm_exit {
	struct trace_entry ent;
	unsigned int exit_reason;
	u32 isa;
};

#pragma clang attribute pop

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	__u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	__u32 val;
};

/* include/linux/sched/ext.h: the task is runnable */
#define SCX_TASK_QUEUED 1

/* include/linux/sched.h, include/uapi/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define SCHED_IDLE 5

/* include/uapi/linux/prctl.h */
#define PR_SCHED_CORE	  62
#define PR_SCHED_CORE_GET 0

#endif /* KERNEL_KERNEL_BPF_H */
