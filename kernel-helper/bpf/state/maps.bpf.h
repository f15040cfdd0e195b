/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler's variables, and the maps for objects that the kernel must know of: locks, timers,
 * and storage that ends with a task.
 */
#ifndef STATE_MAPS_BPF_H
#define STATE_MAPS_BPF_H

#include "state/shared.bpf.h"
#include "state/types.bpf.h"

/* All caches together. */
static struct {
	u32 nr, cpus, caches;
} host;
static struct fair_clock clocks[MAX_CLOCKS];
static struct fair_cpu cpus[GANG_MAX_CPUS];
static struct fair_cache caches[GANG_MAX_CACHES];
static struct fair_gang gangs[GANGS];
static struct fair_group groups[MAX_GROUPS];
const volatile u32 nr_cpus = 1;
static u64 turn_ns = TURN_MOST;
static u32 epoch = 1; /* counts the changes of `members` */
static u32 strict_gangs;

struct fair_lock {
	struct bpf_spin_lock lock;
};

struct fair_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CLOCKS);
	__type(key, u32);
	__type(value, struct fair_lock);
} locks SEC(".maps"); /* each clock has a lock */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fair_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64); /* number of a control group in the kernel */
	__type(value, u32);
} group_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_CPUS);
	__type(key, u32);
	__type(value, struct fair_timer);
} slice_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_CACHES);
	__type(key, u32);
	__type(value, struct fair_timer);
} watch_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct fair_timer);
} quota_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_CPUS);
	__type(key, u32);
	__type(value, struct fair_timer);
} delay_timers SEC(".maps");

#endif /* STATE_MAPS_BPF_H */
