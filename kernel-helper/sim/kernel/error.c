// SPDX-License-Identifier: Apache-2.0
/* scx_error(): why the kernel ejects the scheduler. */
#include <stdarg.h>
#include <stdio.h>

#include "kernel/error.h"

/* The kernel would eject the scheduler now; the first reason is the one that counts. */
void ext_error(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (sim->answer->error[0])
		return;
	va_start(args, format);
	vsnprintf(sim->answer->error, 512, format, args);
	va_end(args);
}
