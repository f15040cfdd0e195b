// SPDX-License-Identifier: Apache-2.0
/*
 * kernel-helper/core/gang_search.h in a BPF program, with the loop form and the hooks of
 * kernel-helper/bpf: it has to compile, and its atomics have to be those BPF knows.
 */
#include "kernel.bpf.h"

#define GANG_FOR(i, n)		 bpf_for(i, 0, n)
#define GANG_FORGET(x)		 asm volatile("" : "+r"(x))
#define GANG_CPUSET		 const struct cpumask
#define GANG_ALLOWED(allow, cpu) bpf_cpumask_test_cpu(cpu, allow)

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

#include "gang_search.h"

char _license[] SEC("license") = "GPL";

struct gang_search search;
struct gang_cost cost;
u32 found;

__noinline int steal_for(u32 cpu)
{
	struct gang_victims victims = {0};

	return gang_next_victim(&search, cpu, &victims, &cost);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(search_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();

	gang_note_idle(&search, cpu, !next->pid);
	gang_note_waiting(&search, cpu, next->pid ? 2 : 0);
	found = gang_find_idle(&search, cpu, next->cpus_ptr, &cost);
	return steal_for(cpu);
}

SEC("syscall")
int search_add(struct gang_args *args)
{
	return gang_search_add(&search, args->gang, args->domain, args->weight, args->mode);
}
