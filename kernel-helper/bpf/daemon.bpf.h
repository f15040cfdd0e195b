/* SPDX-License-Identifier: GPL-2.0 */
/* Maps that the daemon reads and writes, whichever scheduler is loaded, and its record of the end.
 */
#ifndef DAEMON_BPF_H
#define DAEMON_BPF_H

#include "compat.bpf.h"
#include "gang_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct gang_domain);
} domains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_GANGS);
	__type(key, u32);
	__type(value, struct gang_slot_stats);
} gang_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_sched_stats);
} sched_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_decisions);
} decisions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_exit_record);
} exit_record SEC(".maps");

static const u32 zero;

#define print(text, args...)                                                                       \
	({                                                                                         \
		static char __text[] = text;                                                       \
		unsigned long long __args[___bpf_narg(args) ?: 1];                                 \
		___bpf_fill(__args, args);                                                         \
		scx_bpf_dump_bstr(__text, __args, sizeof(__args));                                 \
	})

/* The daemon learns why the kernel ended the scheduler. */
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

#endif /* DAEMON_BPF_H */
