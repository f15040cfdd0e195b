/* SPDX-License-Identifier: Apache-2.0 */
/* How a first process begins: the kernel panics when it ends, and so the domain does. */
#ifndef SEEDS_FIRST_H
#define SEEDS_FIRST_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

#include "progress.h"

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Mount /dev, and write to the serial port. */
static void first_console(void)
{
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (open("/dev/ttyS0", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		exit(1);
}

/* Returns the page, which says that a load begins, with @number counters of its own. */
static struct gangload_counters *first_page(unsigned int number)
{
	struct gangload_counters *page = progress_map();

	if (!page)
		fail("/dev/mem");
	progress_begin(page, number);
	return page;
}

#endif
