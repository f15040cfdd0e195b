// SPDX-License-Identifier: Apache-2.0
/*
 * A scheduler that tries what it is given for libbpf's headers, and ejects itself where something
 * is not as it should be. Only ever compiled for the simulator.
 */
#include "kernel/compat.bpf.h"
#include "model/describe.h"

#define QUEUE 7
#define expect(what)                                                                               \
	do {                                                                                       \
		if (!(what))                                                                       \
			scx_bpf_error_bstr(#what, NULL, 0);                                        \
	} while (0)

void scx_bpf_error_bstr(char *text, unsigned long long *data, u32 size) __ksym;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym;
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
struct task_struct *scx_bpf_dsq_peek(u64 id) __ksym __weak;
bool scx_bpf_not_in_this_kernel(void) __ksym __weak;

struct pair {
	u32 a, b;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, struct pair);
	__type(value, u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct pair);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pair);
} storage SEC(".maps");

struct {
	__uint(type, 32); /* CGRP_STORAGE */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pair);
} groups SEC(".maps");

static u32 queued;

static void try_hash(void)
{
	struct pair one = {1, 2}, two = {2, 1}, three = {3, 3};
	u64 value = 5, *found;

	expect(!bpf_map_lookup_elem(&hash, &one));
	expect(!bpf_map_update_elem(&hash, &one, &value, BPF_NOEXIST));
	expect(bpf_map_update_elem(&hash, &one, &value, BPF_NOEXIST) == -EEXIST);
	expect(!bpf_map_update_elem(&hash, &two, &value, 0));
	expect(bpf_map_update_elem(&hash, &three, &value, 0) == -7);
	found = bpf_map_lookup_elem(&hash, &one);
	expect(found && *found == 5);
	expect(!bpf_map_delete_elem(&hash, &one) && bpf_map_delete_elem(&hash, &one) == -2);
	expect(!bpf_map_lookup_elem(&hash, &one) && bpf_map_lookup_elem(&hash, &two));
}

static void try_arrays(void)
{
	u32 last = 3, past = 4, zero = 0;
	struct pair value = {1, 2}, *found = bpf_map_lookup_elem(&array, &last);
	u64 *mine = bpf_map_lookup_elem(&percpu, &zero);

	expect(found && !found->a && !bpf_map_lookup_elem(&array, &past));
	expect(!bpf_map_update_elem(&array, &last, &value, 0) && found->b == 2);
	expect(mine &&
	       mine == bpf_map_lookup_percpu_elem(&percpu, &zero, bpf_get_smp_processor_id()));
	expect(mine != bpf_map_lookup_percpu_elem(&percpu, &zero, 1));
}

static void try_loops(void)
{
	u32 i, sum = 0, rounds = 0;

	bpf_for(i, 2, 5) {
		sum += i;
		i = 0; /* the loop has a count of its own */
		rounds++;
	}
	expect(sum == 9 && rounds == 3);
	bpf_for(i, 0, 0)
		sum++;
	bpf_repeat(2) sum++;
	expect(sum == 11);
}

static void try_words(void)
{
	unsigned long long words[3] = {};
	char text[4];

	expect(___bpf_narg() == 0 && ___bpf_narg(1, 2, 3) == 3);
	___bpf_fill(words, 7, (u8)8, -1);
	expect(words[0] == 7 && words[1] == 8 && words[2] == ~0ULL);
	expect(bpf_probe_read_kernel_str(text, sizeof(text), "abcdef") && text[2] == 'c' &&
	       !text[3]);
	expect(bpf_ksym_exists(scx_bpf_kick_cpu) && !bpf_ksym_exists(scx_bpf_not_in_this_kernel));
	expect(bpf_core_enum_value(enum scx_kick_flags___gang, SCX_KICK_PREEMPT___gang) == 2);
}

SEC("struct_ops.s/shim_init")
s32 BPF_PROG(shim_init)
{
	try_hash();
	try_arrays();
	try_loops();
	try_words();
	expect(!scx_bpf_create_dsq(QUEUE, -1) && scx_bpf_create_dsq(QUEUE, -1) == -EEXIST);
	expect(scx_bpf_dsq_nr_queued(8) < 0);
#ifdef COMPLAIN
	{
		unsigned long long words[] = {7, -1, (unsigned long)"so", 255};

		scx_bpf_error_bstr("%u of %d, %s: 0x%08llx, 100%%", words, sizeof(words));
	}
#endif
	return 0;
}

static void try_cgroup(struct task_struct *p)
{
	struct cgroup *cgrp = scx_bpf_task_cgroup(p), *top = bpf_cgroup_ancestor(cgrp, 1);
	struct pair *own = bpf_cgrp_storage_get(&groups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	expect(cgrp->level == 2 && top && top->level == 1 && !bpf_cgroup_ancestor(cgrp, 3));
	expect(bpf_cgroup_from_id(cgrp->kn->id) == cgrp);
	expect(own && own == bpf_cgrp_storage_get(&groups, cgrp, 0, 0));
	expect(!bpf_cgrp_storage_get(&groups, top, 0, 0));
}

static void try_task(struct task_struct *p)
{
	const struct task_group *group = BPF_CORE_READ(p, sched_task_group), *none = NULL;
	struct pair *own = bpf_task_storage_get(&storage, p, 0, 0);

	try_cgroup(p);
	/* five tasks, each with its own */
	expect(!own);
	own = bpf_task_storage_get(&storage, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	expect(own && !own->a && own == bpf_task_storage_get(&storage, p, 0, 0));
	expect(bpf_task_from_pid(p->pid) == p && !bpf_task_from_pid(1));
	/* nested as asked: the task's, the system's, the root */
	expect(BPF_CORE_READ(group, shares) == 1 << 19 &&
	       BPF_CORE_READ(group, parent, shares) == 1 << 20);
	expect(!BPF_CORE_READ(group, parent, parent, parent) && !BPF_CORE_READ(none, shares));
	expect(BPF_CORE_READ(group, cfs_bandwidth.quota) == 50000000);
	expect(BPF_CORE_READ(group, cfs_bandwidth.period) == 100000000);
	expect(bpf_cpumask_test_cpu(0, p->cpus_ptr) && !bpf_cpumask_test_cpu(1, p->cpus_ptr));
	expect(p->nr_cpus_allowed == 1 && p->scx.weight == 100);
}

SEC("struct_ops/shim_init_task")
s32 BPF_PROG(shim_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	try_task(p);
	return 0;
}

/* Those that came first go last: moved while the queue is looked through. */
static void try_iterator(s32 cpu)
{
	struct task_struct *p, *seen = scx_bpf_dsq_peek(QUEUE);
	u64 last = 0;
	u32 all = 0;

	bpf_for_each(scx_dsq, p, QUEUE, 0)
	{
		expect(all || p == seen);
		expect(p->scx.dsq_vtime >= last);
		last = p->scx.dsq_vtime;
		if (++all < queued)
			continue;
		scx_bpf_dsq_move_set_slice(&___it, 5000000);
		expect(scx_bpf_dsq_move(&___it, p, DSQ_LOCAL_ON | cpu, 0));
		expect(!scx_bpf_dsq_move(&___it, p, DSQ_LOCAL_ON | cpu, 0));
		expect(p->scx.slice == 5000000);
		queued--;
		break;
	}
	expect(all && scx_bpf_dsq_nr_queued(QUEUE) == (s32)queued);
}

SEC("struct_ops/shim_enqueue")
void BPF_PROG(shim_enqueue, struct task_struct *p, u64 flags)
{
	queued++;
	scx_bpf_dsq_insert_vtime(p, QUEUE, 1000000, 100 - p->pid % 10, flags);
}

SEC("struct_ops/shim_dispatch")
void BPF_PROG(shim_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_nr_queued(QUEUE) > 0)
		try_iterator(cpu);
}

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.enqueue = (void *)shim_enqueue,
	.dispatch = (void *)shim_dispatch,
	.init_task = (void *)shim_init_task,
	.init = (void *)shim_init,
	.name = "shim",
};

int shim_prepare(const struct sim_config *config,
		 void (*set_const)(const volatile void *, __u32, __u32))
{
	return 0;
}

int shim_order(const struct sim_description *sim)
{
	return 0;
}
