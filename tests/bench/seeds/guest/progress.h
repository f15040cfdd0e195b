/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Linux guest counts its progress where the payload does (guests/flat/layout.h): in a page that
 * memmap= on its command line keeps from its kernel, and that the host reads without an exit.
 */
#ifndef SEEDS_PROGRESS_H
#define SEEDS_PROGRESS_H

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../lab/guests/flat/layout.h"

#define LOAD_LINUX 64 /* the payload's loads are below */

/* Returns the page; NULL if the kernel does not give it to us. */
static inline struct gangload_counters *progress_map(void)
{
	int memory = open("/dev/mem", O_RDWR | O_CLOEXEC);
	void *page = MAP_FAILED;

	if (memory >= 0) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory,
			    GANGLOAD_ADDRESS);
		close(memory);
	}
	return page == MAP_FAILED ? NULL : page;
}

/* The page says that a load begins, with @number counters of its own. */
static inline void progress_begin(struct gangload_counters *page, unsigned int number)
{
	for (size_t i = 0; i < sizeof(*page); i++)
		((volatile char *)page)[i] = 0;
	page->version = GANGLOAD_VERSION;
	page->cpus_online = number;
	page->load = LOAD_LINUX;
	page->magic[1] = GANGLOAD_MAGIC_HIGH;
	page->magic[0] = GANGLOAD_MAGIC_LOW;
}

static inline void progress_add(struct gangload_counters *page, uint64_t number)
{
	if (page)
		__atomic_fetch_add(&page->iterations, number, __ATOMIC_RELAXED);
}

#endif
