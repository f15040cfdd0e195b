/* SPDX-License-Identifier: GPL-2.0 */
/* The maps that the scheduler shares with the trace: the gang of a thread, and the turns opened. */
#ifndef STATE_SHARED_BPF_H
#define STATE_SHARED_BPF_H

#include "kernel/kernel.bpf.h"
#include "gang_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GANG_MAX_MEMBERS);
	__type(key, u32);
	__type(value, struct gang_member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_decisions);
} decisions SEC(".maps");

#endif /* STATE_SHARED_BPF_H */
