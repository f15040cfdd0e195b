/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the vCPUs of a guest do, in one 64-bit word that every CPU may change.
 *
 * Plain functions over plain values, no kernel call: BPF and user space compile the same text.
 *
 *     63            20 19       10 9         0
 *     +---------------+-----------+-----------+
 *     | stamp, 1024ns | waiting   | running   |
 *     +---------------+-----------+-----------+
 *
 * Whoever swaps the word owns the interval that ended. Stamps are truncated, but the truncated
 * intervals telescope: no error accumulates. The stamp goes round every 2^54 ns, 208 days and a
 * half, which hosts outlive: only differences modulo that are looked at. One of a round but for a
 * second is a small step back, because another CPU may have stamped a slightly later time: the
 * later stamp stays, and nothing is counted twice.
 *
 * The counts are additive, and a vCPU that leaves a state was counted in it: who cannot swap may
 * add its delta to the word without a stamp and nothing is lost but the moment at
 * which the interval ended.
 */
#ifndef LHP_WORD_H
#define LHP_WORD_H

#include "gang_abi.h"

#define LHP_COUNT_BITS	     10
#define LHP_COUNT_MASK	     ((1ULL << LHP_COUNT_BITS) - 1)
#define LHP_STAMP_SHIFT	     (2 * LHP_COUNT_BITS)
#define LHP_STAMP_MASK	     ((1ULL << (64 - LHP_STAMP_SHIFT)) - 1)
#define LHP_STAMP_UNIT_SHIFT 10
#define LHP_STEP_BACK	     (1ULL << 20) /* in units of the stamp: a second */
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

/* Stamps since that of @word. */
static inline __u64 lhp_passed(__u64 word, __u64 now_ns)
{
	__u64 passed =
		((now_ns >> LHP_STAMP_UNIT_SHIFT) - (word >> LHP_STAMP_SHIFT)) & LHP_STAMP_MASK;

	return passed > LHP_STAMP_MASK - LHP_STEP_BACK ? 0 : passed;
}

/* The word after @delta at @now_ns. */
static inline __u64 lhp_next(__u64 word, __s64 delta, __u64 now_ns)
{
	__u64 stamp = (word >> LHP_STAMP_SHIFT) + lhp_passed(word, now_ns);
	__u64 counts = (word + delta) & ((1ULL << LHP_STAMP_SHIFT) - 1);

	return stamp << LHP_STAMP_SHIFT | counts;
}

/* How long @word stood when it is swapped at @now_ns. */
static inline __u64 lhp_length_ns(__u64 word, __u64 now_ns)
{
	return lhp_passed(word, now_ns) << LHP_STAMP_UNIT_SHIFT;
}

#endif
