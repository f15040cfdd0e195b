/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of two guests of the tile. web answers each request that comes to its UDP port,
 * after 2 ms of work. idle sleeps for 10 to 20 ms, works for 0.1 ms, and notes how late it woke.
 *
 * Each has a thread bound to each vCPU. Where the guest's scheduler put web's by itself differed
 * from boot to boot, and with that the delays, fourfold.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "../../seeds/guest/card.h"

#define PORT	  7
#define REQUEST	  8   /* bytes: a number, which the answer repeats */
#define WEB_WORK  500 /* times 500 instructions: 2 ms at 8 ns each */
#define IDLE_WORK 25
#define SLEEP_NS  10000000
#define DELAYS	  768  /* tile/memory.py reads them */
#define DELAYS_AT 1024 /* bytes into the page */
#define BILLION	  1000000000L

static struct gangload_counters *page;
static int channel; /* of web */

static void work(int times)
{
	/* an emulator pays by the jump */
	while (times--)
		asm volatile(".rept 500; nop; .endr");
}

static void bind_to(long cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		fail("sched_setaffinity");
}

static void *answer(void *cpu)
{
	bind_to((long)cpu);
	for (;;) {
		char request[REQUEST];
		struct sockaddr_in asker;
		socklen_t size = sizeof(asker);

		if (recvfrom(channel, request, REQUEST, 0, (struct sockaddr *)&asker, &size) !=
		    REQUEST)
			continue;
		work(WEB_WORK);
		sendto(channel, request, REQUEST, 0, (struct sockaddr *)&asker, size);
		progress_add(page, 1);
	}
	return NULL;
}

static void serve(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	channel = socket(AF_INET, SOCK_DGRAM, 0);
	if (channel < 0 || bind(channel, (struct sockaddr *)&here, sizeof(here)))
		fail("bind");
	progress_add(page, 1); /* it is ready */
}

static long ns_between(struct timespec from, struct timespec to)
{
	return (to.tv_sec - from.tv_sec) * BILLION + to.tv_nsec - from.tv_nsec;
}

/* A ring of delays in us; the number of iterations says where it ends. */
static void note(long ns)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	volatile uint32_t *delays = (volatile uint32_t *)((char *)page + DELAYS_AT);

	pthread_mutex_lock(&lock);
	delays[page->iterations % DELAYS] = ns / 1000;
	progress_add(page, 1);
	pthread_mutex_unlock(&lock);
}

static void *wake(void *cpu)
{
	unsigned int seed = (long)cpu;

	bind_to((long)cpu);
	for (;;) {
		struct timespec due, now;

		clock_gettime(CLOCK_MONOTONIC, &due);
		due.tv_nsec += SLEEP_NS + rand_r(&seed) % SLEEP_NS;
		due.tv_sec += due.tv_nsec / BILLION;
		due.tv_nsec %= BILLION;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
			;
		clock_gettime(CLOCK_MONOTONIC, &now);
		note(ns_between(due, now));
		work(IDLE_WORK);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int web = argc > 1 && !strcmp(argv[1], "web");
	pthread_t thread;

	first_console();
	page = first_page(cpus);
	if (web) {
		card_begin();
		serve();
	}
	for (long i = 0; i < cpus; i++)
		if (pthread_create(&thread, NULL, web ? answer : wake, (void *)i))
			fail("pthread_create");
	pthread_join(thread, NULL);
	return 1;
}
