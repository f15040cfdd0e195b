// SPDX-License-Identifier: Apache-2.0
/*
 * spin N [FIRST]: N threads, thread i on CPU FIRST + i only, that never sleep. Prints "TID" of
 * each on a line of its own, in order; ends when its standard input does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static pid_t tids[64];
static long first;

static void *spin(void *number)
{
	long i = (long)number;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(first + i, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	__atomic_store_n(&tids[i], gettid(), __ATOMIC_RELEASE);
	/* an emulator pays by the jump: two hogs in virtual time take a twentieth of the host's */
	for (;;)
		asm volatile(".rept 500; nop; .endr");
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 2, i;
	pthread_t thread;
	char end;

	first = argc > 2 ? atol(argv[2]) : 0;
	/* ordinary, however urgent whoever starts it is */
	if (setpriority(PRIO_PROCESS, 0, 0))
		return 1;
	for (i = 0; i < threads && i < 64; i++)
		if (pthread_create(&thread, NULL, spin, (void *)i))
			return 1;
	for (i = 0; i < threads && i < 64; i++) {
		while (!__atomic_load_n(&tids[i], __ATOMIC_ACQUIRE))
			usleep(1000);
		printf("%d\n", tids[i]);
	}
	fflush(stdout);
	while (read(0, &end, 1) > 0)
		;
	return 0;
}
