// SPDX-License-Identifier: Apache-2.0
/*
 * bpf/gang.bpf.c (or another program with the same name for its ops) as a shared object: the text
 * that the kernel runs, with the shim's headers in the place of libbpf's, the model's types in the
 * place of kernel.bpf.h's, and what the daemon would tell it (orders.c). Nothing in it knows the
 * simulator but by the functions that it calls.
 */
#include <bpf/bpf_helpers.h>

#define cpumask		    cpumask___bpf
#define cgroup		    cgroup___bpf
#define kernfs_node	    kernfs_node___bpf
#define css_set		    css_set___bpf
#define cgroup_subsys_state cgroup_subsys_state___bpf
#define cfs_bandwidth	    cfs_bandwidth___bpf
#define task_group	    task_group___bpf
#define load_weight	    load_weight___bpf
#define sched_entity	    sched_entity___bpf
#define sched_ext_entity    sched_ext_entity___bpf
#define task_struct	    task_struct___bpf
#define rt_rq		    rt_rq___bpf
#define rq		    rq___bpf
#include "kernel/kernel.bpf.h"
#undef cpumask
#undef cgroup
#undef kernfs_node
#undef css_set
#undef cgroup_subsys_state
#undef cfs_bandwidth
#undef task_group
#undef load_weight
#undef sched_entity
#undef sched_ext_entity
#undef task_struct
#undef rt_rq
#undef rq

#include "model/kernel.h"

#define scx_init_task_args   scx_init_task_args___bpf
#define scx_cpu_release_args scx_cpu_release_args___bpf
#define scx_cgroup_init_args scx_cgroup_init_args___bpf
#include "kernel/compat.bpf.h"
#undef scx_init_task_args
#undef scx_cpu_release_args
#undef scx_cgroup_init_args

/* from here on the ops are the model's, which have every member */
#define sched_ext_ops sim_ops
#ifndef SHIM_SCHEDULER
#define SHIM_SCHEDULER "gang.bpf.c"
#define SHIM_ORDERS    "shim/orders.c"
#endif
#include SHIM_SCHEDULER
#ifdef SHIM_ORDERS
#include SHIM_ORDERS
#endif

unsigned long long shim_steps;
