/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's types as the scheduler may see them in the simulation. Those of
 * bpf/kernel/kernel.bpf.h name what it uses today; these have what the model of the kernel fills
 * in, and one layout on both sides. A member that is not here is not modelled, and using it does
 * not compile.
 */
#ifndef GANG_KERNEL_H
#define GANG_KERNEL_H

#define SHIM_CPUS 1024

struct cpumask {
	unsigned long bits[SHIM_CPUS / 64];
};
typedef struct cpumask cpumask_t;

struct kernfs_node {
	unsigned long long id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct kernfs_node node;
	void *storage[8]; /* BPF_MAP_TYPE_CGRP_STORAGE: map, value, map, value ... */
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cfs_bandwidth {
	unsigned long long period; /* ns; ktime_t */
	unsigned long long quota;  /* ns, or all ones */
	unsigned long long burst;
};

struct task_group {
	struct cgroup_subsys_state css;
	int idle;
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct load_weight {
	unsigned long weight;
};

struct sched_entity {
	struct load_weight load;
	unsigned long long sum_exec_runtime;
	unsigned long long vruntime;
};

struct sched_ext_entity {
	unsigned int flags;
	unsigned int weight;
	int selected_cpu;
	unsigned long long slice;
	unsigned long long dsq_vtime;
	unsigned long runnable_at;
};

struct mm_struct;

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int __state;
	int on_cpu;
	int on_rq;
	int prio;
	int static_prio;
	int normal_prio;
	unsigned int policy;
	int nr_cpus_allowed;
	int recent_used_cpu;
	int wake_cpu;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct cpumask cpus_mask;
	struct task_group *sched_task_group;
	struct css_set *cgroups;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct sched_entity se;
	struct sched_ext_entity scx;
	unsigned long core_cookie; /* 0: core scheduling is not modelled */
	unsigned long long start_time;
	char comm[16];
	void *storage[8]; /* BPF_MAP_TYPE_TASK_STORAGE: map, value, map, value ... */
};

struct rt_rq {
	unsigned int rt_nr_running; /* 0: no class but ours is modelled */
};

struct rq {
	struct rt_rq rt;
};

struct scx_init_task_args {
	_Bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	_Bool cancelled;
};

struct scx_cpu_release_args {
	int reason;
	struct task_struct *task;
};

struct scx_cpu_acquire_args {
};

struct scx_cgroup_init_args {
	unsigned int weight;
	unsigned long long bw_period_us;
	unsigned long long bw_quota_us;
	unsigned long long bw_burst_us;
};

/* Every member that a scheduler may set, whether or not the model ever calls it. */
struct sim_ops {
	int (*select_cpu)(struct task_struct *p, int prev_cpu, unsigned long long wake_flags);
	void (*enqueue)(struct task_struct *p, unsigned long long enq_flags);
	void (*dequeue)(struct task_struct *p, unsigned long long deq_flags);
	void (*dispatch)(int cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*runnable)(struct task_struct *p, unsigned long long enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, _Bool runnable);
	void (*quiescent)(struct task_struct *p, unsigned long long deq_flags);
	_Bool (*yield)(struct task_struct *from, struct task_struct *to);
	_Bool (*core_sched_before)(struct task_struct *a, struct task_struct *b);
	void (*set_weight)(struct task_struct *p, unsigned int weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*update_idle)(int cpu, _Bool idle);
	void (*cpu_acquire)(int cpu, struct scx_cpu_acquire_args *args);
	void (*cpu_release)(int cpu, struct scx_cpu_release_args *args);
	int (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void *dump;
	void *dump_cpu;
	void *dump_task;
	int (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	int (*cgroup_prep_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_cancel_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, unsigned int weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, unsigned long long period_us,
				     unsigned long long quota_us, unsigned long long burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, _Bool idle);
	void (*cpu_online)(int cpu);
	void (*cpu_offline)(int cpu);
	int (*init)(void);
	void *exit;
	unsigned int dispatch_max_batch;
	unsigned long long flags;
	unsigned int timeout_ms;
	unsigned int exit_dump_len;
	unsigned long long hotplug_seq;
	char name[128];
	void *priv;
};

#endif /* GANG_KERNEL_H */
