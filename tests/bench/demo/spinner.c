/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first and only process of a stock Linux guest: threads that work in step, as a parallel loop
 * does.
 *
 * Each turn they fight for a lock of the kernel's, that of the table of open files, and then meet
 * at a barrier in user space. All of them but the last spin there, PAUSE in every WINDOW-th turn
 * (the emulator has no pause filter). "beat MILLISECONDS TURNS" on the console is the guest's own
 * account, by its own clock.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

/* each beat costs the host, which logs it, a thousandth of a second or more */
#define BEAT_NS 999999999L
#define LOCKED	20 /* times a turn that a thread takes the kernel's lock */

static unsigned long window = 1;
static long threads;
static _Atomic long arrived;
static _Atomic unsigned long turns;

static void fail(const char *what)
{
	perror(what);
	exit(1); /* the kernel panics, and the domain ends */
}

static void meet(unsigned long turn)
{
	unsigned long spun = 0;

	if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
		atomic_store(&arrived, 0);
		atomic_store(&turns, turn + 1);
		return;
	}
	while (atomic_load(&turns) == turn)
		if (++spun % window == 0)
			__builtin_ia32_pause();
}

static void *work(void *unused)
{
	for (unsigned long turn = 0;; turn++) {
		for (int i = 0; i < LOCKED; i++)
			close(dup(0));
		meet(turn);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct timespec pause = {0, BEAT_NS}, now;
	pthread_t thread;

	if (argc > 1)
		window = strtoul(argv[1], NULL, 10);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (open("/dev/ttyS0", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		return 1;
	threads = sysconf(_SC_NPROCESSORS_ONLN);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, work, NULL))
			fail("thread");
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("beat %ld %lu\n", now.tv_sec * 1000L + now.tv_nsec / 1000000,
		       atomic_load(&turns));
		fflush(stdout);
		nanosleep(&pause, NULL);
	}
}
