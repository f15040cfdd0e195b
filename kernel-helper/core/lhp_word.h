/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The states of a guest's vCPUs, in one 64-bit word that every CPU may change.
 *
 * The functions are plain and make no kernel call: BPF and user space compile the same text.
 *
 *     63            20 19       10 9         0
 *     +---------------+-----------+-----------+
 *     | stamp, 1024ns | waiting   | running   |
 *     +---------------+-----------+-----------+
 *
 * The CPU that swaps the word owns the interval that ended. Stamps are truncated, but the truncated
 * intervals telescope: no error accumulates. The stamp wraps every 2^54 ns (208.5 days), and hosts
 * run for longer: the functions look only at differences modulo that. A difference that lacks less
 * than a second to a full round is a small step back, because another CPU may have stamped a
 * slightly later time: the later stamp stays, and no interval is counted twice.
 *
 * The counts are additive, and a vCPU that leaves a state was counted in it. A CPU that cannot swap
 * the word may therefore add its delta without a stamp: only the moment at which the interval ended
 * is lost.
 */
#ifndef LHP_WORD_H
#define LHP_WORD_H

#include "gang_abi.h"

#define LHP_COUNT_BITS	     10
#define LHP_COUNT_MASK	     ((1ULL << LHP_COUNT_BITS) - 1)
#define LHP_STAMP_SHIFT	     (2 * LHP_COUNT_BITS)
#define LHP_STAMP_MASK	     ((1ULL << (64 - LHP_STAMP_SHIFT)) - 1)
#define LHP_STAMP_UNIT_SHIFT 10
#define LHP_STEP_BACK	     (1ULL << 20) /* a second, in units of the stamp */
#define LHP_ONE_RUNNING	     1LL
#define LHP_ONE_WAITING	     (1LL << LHP_COUNT_BITS)

static inline __u64 lhp_running(__u64 word)
{
	return word & LHP_COUNT_MASK;
}

static inline __u64 lhp_waiting(__u64 word)
{
	return word >> LHP_COUNT_BITS & LHP_COUNT_MASK;
}

/* Return the time since the stamp of @word, in units of the stamp. */
static inline __u64 lhp_passed(__u64 word, __u64 now_ns)
{
	__u64 passed =
		((now_ns >> LHP_STAMP_UNIT_SHIFT) - (word >> LHP_STAMP_SHIFT)) & LHP_STAMP_MASK;

	return passed > LHP_STAMP_MASK - LHP_STEP_BACK ? 0 : passed;
}

/* Return the word that follows @word after a change of the counts by @delta at @now_ns. */
static inline __u64 lhp_next(__u64 word, __s64 delta, __u64 now_ns)
{
	__u64 stamp = (word >> LHP_STAMP_SHIFT) + lhp_passed(word, now_ns);
	__u64 counts = (word + delta) & ((1ULL << LHP_STAMP_SHIFT) - 1);

	return stamp << LHP_STAMP_SHIFT | counts;
}

/* Return how long @word stood, in ns, if a CPU swaps it at @now_ns. */
static inline __u64 lhp_length_ns(__u64 word, __u64 now_ns)
{
	return lhp_passed(word, now_ns) << LHP_STAMP_UNIT_SHIFT;
}

#endif
