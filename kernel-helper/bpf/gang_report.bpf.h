/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel prints for us when it ejects the scheduler or is asked (SysRq-D). */
#ifndef GANG_REPORT_BPF_H
#define GANG_REPORT_BPF_H

#include "gang_slot.bpf.h"

static void print_slot(u32 index, u64 now)
{
	struct gang_slot *slot = slot_of(index);
	u64 word = word_of(slot);

	if (!slot->columns)
		return;
	print("gang domain %u: slot %u, opened %llu us ago, %llu us left, ordinary tasks on %llx\n",
	      index, gang_word_generation(word), (now - slot->opened) / 1000,
	      gang_slot_left(word, now) / 1000, slot->waiting);
}

static void print_gang(u32 id, u64 now)
{
	struct gang_state *gang = gang_of(gang_index(id));

	if (gang->mode == GANG_MODE_OFF)
		return;
	print("gang %u: domain %u, mode %u, weight %u, columns %llx, ready %llx, running %llx, ",
	      id, gang->domain, gang->mode, gang->weight, gang->columns, gang->ready,
	      gang->running);
	print("last slot %llu us ago\n", (now - gang->last_slot) / 1000);
}

SEC("struct_ops/gang_dump")
void BPF_PROG(gang_dump, struct scx_dump_ctx *dump)
{
	u64 now = bpf_ktime_get_ns();
	u32 i;

	bpf_for(i, 0, GANG_MAX_DOMAINS)
		print_slot(i, now);
	bpf_for(i, 1, GANG_MAX_GANGS)
		print_gang(i, now);
}

SEC("struct_ops/gang_dump_cpu")
void BPF_PROG(gang_dump_cpu, struct scx_dump_ctx *dump, s32 id, bool idle)
{
	struct gang_cpu *cpu = cpu_of(id);
	struct gang_slot *slot = slot_of(cpu->domain);

	if (idle && !cpu->grouped)
		return;
	print("gangd: grouped %u, domain %u, column %u, owner %u, runs %u, strays %u, queued %d",
	      cpu->grouped, cpu->domain, cpu->column, gang_owner(slot, word_of(slot), cpu->column),
	      cpu->current, cpu->strays, scx_bpf_dsq_nr_queued(queue_of(GANG_OTHERS, id)));
}

SEC("struct_ops/gang_dump_task")
void BPF_PROG(gang_dump_task, struct scx_dump_ctx *dump, struct task_struct *p)
{
	struct gang_task *task = bpf_task_storage_get(&tasks, p, 0, 0);

	if (task)
		print("gangd: gang %u, column %u, CPU %u, vtime %llu", task->gang, task->column,
		      task->cpu, task->vtime);
}

SEC("struct_ops.s/gang_exit")
void BPF_PROG(gang_exit, struct scx_exit_info *info)
{
	ended = 1;
	record_exit(info);
}

#endif /* GANG_REPORT_BPF_H */
