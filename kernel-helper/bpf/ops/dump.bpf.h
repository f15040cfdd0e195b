/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lines that the kernel prints when it ejects the scheduler, or on SysRq-D; the reason of an
 * ejection.
 */
#ifndef OPS_DUMP_BPF_H
#define OPS_DUMP_BPF_H

#include "gang/deadline.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_exit_record);
} exit_record SEC(".maps");

#define print(text, args...)                                                                       \
	({                                                                                         \
		static char __text[] = text;                                                       \
		unsigned long long __args[___bpf_narg(args) ?: 1];                                 \
		___bpf_fill(__args, args);                                                         \
		scx_bpf_dump_bstr(__text, __args, sizeof(__args));                                 \
	})

static void print_cache(u32 id, u64 now)
{
	const struct fair_cache *d = cache_of(id);

	print("cache %u: %u runnable, %u run, weight %llu, %u gangs, %d queued", id,
	      runnable_in(id), running_in(id), weight_in(id), d->gangs,
	      scx_bpf_dsq_nr_queued(cache_queue(id)));
	print(", clock %llu\n", clock_at(id, now));
}

static void print_gang(u32 id, u64 now)
{
	const struct fair_gang *g = gang_of(id);

	if (!g->caches)
		return;
	print("gang %u: caches %llx, mode %u, %u runnable, %d queued, turn ends in %lld us\n", id,
	      g->caches, g->mode, g->nr_runnable, scx_bpf_dsq_nr_queued(gang_queue(id)),
	      (s64)(g->until - now) >> 10);
}

SEC("struct_ops/gang_dump")
void BPF_PROG(gang_dump, struct scx_dump_ctx *dump)
{
	u64 now = bpf_ktime_get_ns();
	u32 i;

	bpf_for(i, 0, host.caches)
		print_cache(i, now);
	bpf_for(i, 1, GANG_MAX_GANGS)
		print_gang(i, now);
}

SEC("struct_ops/gang_dump_cpu")
void BPF_PROG(gang_dump_cpu, struct scx_dump_ctx *dump, s32 id, bool idle)
{
	const struct fair_cpu *c = cpu_of(id);

	if (idle)
		return;
	print("gangd: cache %u, runs %u of gang %u, turn of %u, queued %d, local %d", c->cache,
	      c->pid, c->gang, c->turn, scx_bpf_dsq_nr_queued(cpu_queue(id)),
	      scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | id));
}

SEC("struct_ops/gang_dump_task")
void BPF_PROG(gang_dump_task, struct scx_dump_ctx *dump, struct task_struct *p)
{
	const struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	u64 now = bpf_ktime_get_ns();

	if (!t)
		return;
	print("gangd: counted %u, held %u, clock %u, gang %u, group %u, queue %llx", t->on_rq,
	      t->throttled, t->clock, t->gang, t->group, t->queue);
	print("gangd: weight %llu, lag %lld us, burst %lld us", t->w,
	      fair_after(clock_at(t->clock, now), t->v) >> 10, (s64)t->burst >> 10);
}

/* Record why the kernel ended the scheduler, for the daemon. */
static void record_exit(const struct scx_exit_info *info)
{
	struct gang_exit_record *record = bpf_map_lookup_elem(&exit_record, &zero);

	if (!record)
		return;
	bpf_probe_read_kernel_str(record->reason, sizeof(record->reason), info->reason);
	bpf_probe_read_kernel_str(record->message, sizeof(record->message), info->msg);
	bpf_probe_read_kernel_str(record->dump, sizeof(record->dump), info->dump);
	record->code = info->exit_code;
	record->kind = info->kind;
}

SEC("struct_ops.s/gang_exit")
void BPF_PROG(gang_exit, struct scx_exit_info *info)
{
	record_exit(info);
}

#endif /* OPS_DUMP_BPF_H */
