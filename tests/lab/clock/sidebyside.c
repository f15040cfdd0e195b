// SPDX-License-Identifier: Apache-2.0
/*
 * sidebyside N: N threads, thread i on CPU i only, for a second each: first every one counts by
 * itself, then all meet at a spin barrier. Prints the turns of each in that second, and on a second
 * line how often the barrier was crossed. What CPUs that run at the same time can do, and others
 * not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX 64

static atomic_int stop;
static atomic_int arrived, sense;
static long turns[MAX], crossed, threads;

static long place(void *number)
{
	long i = (long)number;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(i, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		exit(1);
	return i;
}

static void *count(void *number)
{
	long i = place(number), turn;

	for (turn = 0; !atomic_load_explicit(&stop, memory_order_relaxed); turn++)
		asm volatile("");
	turns[i] = turn;
	return NULL;
}

static void *meet(void *number)
{
	int mine = 0;

	place(number);
	while (!atomic_load(&stop)) {
		mine = !mine;
		if (atomic_fetch_add(&arrived, 1) == threads - 1) {
			atomic_store(&arrived, 0);
			crossed++;
			atomic_store(&sense, mine);
			continue;
		}
		while (atomic_load(&sense) != mine && !atomic_load(&stop))
			;
	}
	return NULL;
}

static void second_of(void *(*work)(void *))
{
	pthread_t started[MAX];
	long i;

	atomic_store(&stop, 0);
	for (i = 0; i < threads; i++)
		if (pthread_create(&started[i], NULL, work, (void *)i))
			exit(1);
	sleep(1);
	atomic_store(&stop, 1);
	for (i = 0; i < threads; i++)
		pthread_join(started[i], NULL);
}

int main(int argc, char **argv)
{
	long i;

	threads = argc > 1 ? atol(argv[1]) : 0;
	if (threads < 1 || threads > MAX)
		return 2;
	second_of(count);
	for (i = 0; i < threads; i++)
		printf("%ld ", turns[i]);
	second_of(meet);
	printf("\n%ld\n", crossed);
	return 0;
}
