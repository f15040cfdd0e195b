/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of the scheduler, on each CPU, and of each gang; the scheduler's own time, by samples.
 */
#ifndef STATE_STATS_BPF_H
#define STATE_STATS_BPF_H

#include "state/lookup.bpf.h"

static const u32 zero;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_GANGS);
	__type(key, u32);
	__type(value, struct gang_stats);
} gang_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gang_sched_stats);
} sched_stats SEC(".maps");

#define count(what)                                                                                \
	do {                                                                                       \
		struct gang_sched_stats *__s = bpf_map_lookup_elem(&sched_stats, &zero);           \
		if (__s)                                                                           \
			__s->what++;                                                               \
	} while (0)
#define SAMPLE 64 /* the scheduler times one call in so many */

/*
 * Count a call of an operation in @calls, and time one call in SAMPLE. The start of that is kept in
 * the CPU's record, because the stack is what the call needs most.
 */
#define begin_sample(calls)                                                                        \
	do {                                                                                       \
		struct gang_sched_stats *__s = bpf_map_lookup_elem(&sched_stats, &zero);           \
		if (__s && !(__s->calls++ % SAMPLE))                                               \
			cpu_of(bpf_get_smp_processor_id())->sampled = bpf_ktime_get_ns();          \
	} while (0)

/* End a timed call, and add its time to @kind. */
#define end_sample(kind)                                                                           \
	do {                                                                                       \
		struct fair_cpu *__c = cpu_of(bpf_get_smp_processor_id());                         \
		struct gang_sched_stats *__s;                                                      \
		if (!__c->sampled)                                                                 \
			break;                                                                     \
		__s = bpf_map_lookup_elem(&sched_stats, &zero);                                    \
		if (__s) {                                                                         \
			__s->kind##_ns += bpf_ktime_get_ns() - __c->sampled;                       \
			__s->kind##_samples++;                                                     \
		}                                                                                  \
		__c->sampled = 0;                                                                  \
	} while (0)

/*
 * Return the histogram bucket of @ns: the number of bits of its microseconds. The function has no
 * loop, since the verifier would follow each iteration.
 */
static u32 bucket_of(u64 ns)
{
	u64 us = ns / 1000;
	u32 bits = 0;

	if (us >> 16) {
		us >>= 16;
		bits += 16;
	}
	if (us >> 8) {
		us >>= 8;
		bits += 8;
	}
	if (us >> 4) {
		us >>= 4;
		bits += 4;
	}
	if (us >> 2) {
		us >>= 2;
		bits += 2;
	}
	bits += us > 1 ? 2 : us;
	return bits < GANG_BUCKETS ? bits : GANG_BUCKETS - 1;
}

/* Add @by to a counter of @gang. Counts for no gang go to number 0, which no reader looks at. */
#define count_of(gang, what, by)                                                                   \
	do {                                                                                       \
		u32 __gang = (gang);                                                               \
		struct gang_stats *__s = bpf_map_lookup_elem(&gang_stats, &__gang);                \
		if (__s)                                                                           \
			__sync_fetch_and_add(&__s->what, by);                                      \
	} while (0)

/*
 * Record that a turn of @gang was opened, of @length at most, for @waited members that were off
 * CPU.
 */
static void note_turn(u32 gang, u32 waited, u64 length, u64 now)
{
	struct gang_stats *stats = bpf_map_lookup_elem(&gang_stats, &gang);
	struct gang_decisions *ring = bpf_map_lookup_elem(&decisions, &zero);
	struct gang_decision *one;

	count(turns);
	if (stats) {
		__sync_fetch_and_add(&stats->turns, 1);
		__sync_fetch_and_add(&stats->seats_wanted, waited);
	}
	if (!ring)
		return;
	one = &ring->last[__sync_fetch_and_add(&ring->next, 1) % GANG_DECISIONS];
	one->time = now;
	one->cpu = bpf_get_smp_processor_id();
	one->gang = gang;
	one->length_us = length / 1000;
	one->kind = GANG_DECISION_TURN;
}

/* Record that the last member that a turn was opened for is on CPU, @skew ns after its start. */
static void note_whole(u32 gang, u64 skew)
{
	struct gang_stats *stats = bpf_map_lookup_elem(&gang_stats, &gang);
	u32 bucket = bucket_of(skew);

	if (bucket < GANG_BUCKETS)
		count(start_skew[bucket]);
	if (!stats)
		return;
	__sync_fetch_and_add(&stats->whole, 1);
	__sync_fetch_and_add(&stats->skew_ns, skew);
	if (skew > stats->skew_max_ns)
		stats->skew_max_ns = skew;
}

/* Record that @t ran on @c for @ns until @now. The turn of its gang may have ended meanwhile. */
static void note_member_ran(const struct fair_cpu *c, const struct fair_task *t, u64 ns, u64 now)
{
	s64 past = fair_after(now, c->until);
	u32 gang = t->gang;
	struct gang_stats *stats;
	u64 apart = 0;

	if (!gang)
		return;
	stats = bpf_map_lookup_elem(&gang_stats, &gang);
	if (!stats)
		return;
	if (c->turn != gang || past > (s64)ns)
		apart = ns;
	else if (past > 0)
		apart = past;
	__sync_fetch_and_add(&stats->run_ns, ns);
	__sync_fetch_and_add(&stats->apart_ns, apart);
	if (c->lent)
		__sync_fetch_and_add(&stats->borrowed_ns, ns - apart);
}

/*
 * Record how long @t was throttled. The task waits no longer, or is queued as throttled once more.
 */
static void note_throttled(const struct fair_task *t, u64 now)
{
	if (t->throttled)
		count_of(t->gang, throttled_ns, fair_since(t->since, now));
}

#endif /* STATE_STATS_BPF_H */
