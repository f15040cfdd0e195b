/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - what a gangload guest shows to the outside: the progress counters
 * at a fixed guest-physical address. counters.py is the reader; keep the two equal.
 *
 * Tearing: every u64 here is naturally aligned (so it never crosses a cache
 * line) and is written only by LOCK CMPXCHG8B, which the architecture makes one
 * indivisible 64-bit store. A host that copies with loads of 8 bytes or more
 * (memcpy, as QEMU's pmemsave and libvirt's virDomainMemoryPeek do) therefore
 * never sees half an update. The fields are not a snapshot of one instant: two
 * of them may differ by the updates made between reading one and the other.
 */
#ifndef GANGLOAD_LAYOUT_H
#define GANGLOAD_LAYOUT_H

#define GANGLOAD_ADDRESS    0x200000
#define GANGLOAD_VERSION    1
#define GANGLOAD_MAX_CPUS   64
#define GANGLOAD_MAGIC_LOW  0x474e4147 /* "GANG", little endian */
#define GANGLOAD_MAGIC_HIGH 0x44414f4c /* "LOAD" */

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

/* gangload_counters.load */
enum gangload_id {
	LOAD_BARRIER = 1,
	LOAD_SPINLOCK = 2,
	LOAD_SPIN = 3,
	LOAD_IPI = 4,
	LOAD_SLEEPWAKE = 5,
	LOAD_HALT = 6,
	LOAD_DUTY = 7,
};

/* gangload_counters.phase: what vCPU 1 of `duty` does now; 0 in other loads. */
enum gangload_phase {
	PHASE_NONE = 0,
	PHASE_SPINNING = 1,
	PHASE_HALTED = 2,
};

struct gangload_counters {
	uint32_t magic[2]; /* written last: all else is valid once it reads GANGLOAD */
	uint32_t version;
	uint32_t cpus_online; /* the vCPUs that take part, as asked with cpus= */
	uint32_t load;	      /* enum gangload_id */
	uint32_t phase;	      /* enum gangload_phase */
	uint64_t iterations;  /* progress of the whole load; only ever grows */
	uint64_t per_cpu[GANGLOAD_MAX_CPUS];
};

_Static_assert(sizeof(struct gangload_counters) == 544, "counters.py knows this size");
_Static_assert(offsetof(struct gangload_counters, iterations) == 24, "aligned for CMPXCHG8B");
_Static_assert(offsetof(struct gangload_counters, per_cpu) == 32, "aligned for CMPXCHG8B");

#define counters ((volatile struct gangload_counters *)GANGLOAD_ADDRESS)

#endif
#endif
