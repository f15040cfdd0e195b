/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of the guest whose latency is measured. Its kernel answers pings at 10.31.0.1;
 * with "fio" on its command line it also reads its disk, one block of 4 KiB after the other at
 * random, past the page cache, as fio's psync engine does, and counts how long each took.
 */
#define _GNU_SOURCE
#include <linux/fs.h>
#include <string.h>
#include <time.h>

#include "card.h"

#define BLOCK	 4096
#define LEAST_NS 16384 /* of the first class; four classes make an octave */

static struct gangload_counters *page;

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* Returns the class of @ns: 4 n + m ends at LEAST_NS * 2^n * (1 + m / 4), as in seeds/latency.py.
 */
static unsigned int class_of(unsigned long long ns)
{
	unsigned long long octave = LEAST_NS;
	unsigned int found = 0;

	for (; found < GANGLOAD_MAX_CPUS - 1; found++) {
		if (ns < octave + octave * (found % 4) / 4)
			break;
		if (found % 4 == 3)
			octave *= 2;
	}
	return found;
}

static void read_disk(void)
{
	unsigned int seed = 1;
	unsigned long long size;
	int disk = open("/dev/vda", O_RDONLY | O_DIRECT);
	void *block = aligned_alloc(BLOCK, BLOCK);

	if (disk < 0 || ioctl(disk, BLKGETSIZE64, &size))
		fail("/dev/vda");
	for (;;) {
		unsigned long long begin = now();

		if (pread(disk, block, BLOCK, rand_r(&seed) % (size / BLOCK) * BLOCK) != BLOCK)
			fail("pread");
		page->per_cpu[class_of(now() - begin)]++;
		progress_add(page, 1);
	}
}

int main(int argc, char **argv)
{
	first_console();
	card_begin();
	page = first_page(GANGLOAD_MAX_CPUS);
	if (argc > 1 && !strcmp(argv[1], "fio"))
		read_disk();
	for (;;) {
		progress_add(page, 1);
		usleep(100000);
	}
}
