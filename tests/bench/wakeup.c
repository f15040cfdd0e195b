// SPDX-License-Identifier: Apache-2.0
/*
 * wakeup SECONDS: how long a woken thread waits for a CPU, after Chris Mason's schbench: message
 * threads wake workers, a worker thinks for a while and sleeps again. Prints the median and the
 * 99th percentile in microseconds, and how many wakeups there were.
 *
 * There are twice as many workers as CPUs and each thinks about as long as it sleeps, so that a
 * wakeup often finds its CPU busy. Between the stamp and the wake there is nothing but the system
 * call.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MESSENGERS 2
#define WORKERS	   2 /* of each messenger */
#define SAMPLES	   (1 << 18)
#define THINK	   200000   /* turns of an empty loop */
#define PERIOD	   2000000L /* ns between two rounds of a messenger */

struct worker {
	uint32_t ticket __attribute__((aligned(64)));
	uint64_t woken;
};

static struct worker workers[MESSENGERS][WORKERS];
static uint32_t waits[SAMPLES], samples, over;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void futex(uint32_t *word, int operation, uint32_t value)
{
	syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void *work(void *argument)
{
	struct worker *self = argument;
	uint32_t i, seen = 0;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		while (__atomic_load_n(&self->ticket, __ATOMIC_ACQUIRE) == seen)
			futex(&self->ticket, FUTEX_WAIT, seen);
		i = __atomic_fetch_add(&samples, 1, __ATOMIC_RELAXED);
		if (i < SAMPLES)
			waits[i] = (now() - self->woken) / 1000;
		seen = __atomic_load_n(&self->ticket, __ATOMIC_ACQUIRE);
		for (i = 0; i < THINK; i++)
			asm volatile("");
	}
	return NULL;
}

static void *message(void *argument)
{
	struct worker *mine = argument;
	struct timespec pause = {0, PERIOD};
	int i;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		nanosleep(&pause, NULL);
		for (i = 0; i < WORKERS; i++) {
			mine[i].woken = now();
			__atomic_fetch_add(&mine[i].ticket, 1, __ATOMIC_RELEASE);
			futex(&mine[i].ticket, FUTEX_WAKE, 1);
		}
	}
	return NULL;
}

static int by_size(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 5, m, w, found;
	pthread_t thread;

	for (m = 0; m < MESSENGERS; m++) {
		for (w = 0; w < WORKERS; w++)
			if (pthread_create(&thread, NULL, work, &workers[m][w]))
				return 1;
		if (pthread_create(&thread, NULL, message, workers[m]))
			return 1;
	}
	sleep(seconds);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	found = samples < SAMPLES ? samples : SAMPLES;
	if (!found)
		return 1;
	qsort(waits, found, sizeof(waits[0]), by_size);
	printf("%u %u %u\n", waits[found / 2], waits[(uint64_t)found * 99 / 100], found);
	return 0;
}
