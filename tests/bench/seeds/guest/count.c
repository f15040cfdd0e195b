/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a benchmark of others: each call by which it gets something done counts. hackbench
 * sends a message by write, dbench moves a block by pread and pwrite, pgbench gives an order by
 * send.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

#include "progress.h"

static struct gangload_counters *page;

__attribute__((constructor)) static void map(void)
{
	page = progress_map();
}

#define COUNTED(type, name, args, ...)                                                             \
	type name args                                                                             \
	{                                                                                          \
		static type(*next) args;                                                           \
                                                                                                   \
		if (!next)                                                                         \
			next = (type(*) args)dlsym(RTLD_NEXT, #name);                              \
		progress_add(page, 1);                                                             \
		return next(__VA_ARGS__);                                                          \
	}

COUNTED(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
COUNTED(ssize_t, pread, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
COUNTED(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
COUNTED(ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
