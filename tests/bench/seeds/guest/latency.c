/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of the guest whose latency is measured. Its kernel answers pings at 10.31.0.1;
 * with "fio" on its command line it also reads its disk, one block of 4 KiB after the other at
 * random, past the page cache, as fio's psync engine does, and counts how long each took.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/fs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "progress.h"

#define ADDRESS	 "10.31.0.1"
#define BLOCK	 4096
#define LEAST_NS 16384 /* of the first class; four classes make an octave */

static struct gangload_counters *page;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void load_drivers(void)
{
	struct dirent **found;
	int number = scandir("/modules", &found, NULL, alphasort);

	for (int i = 0; i < number; i++) {
		char path[300];
		int file;

		if (found[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/modules/%s", found[i]->d_name);
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (syscall(SYS_finit_module, file, "", 0))
			fail(path);
		close(file);
	}
}

static void set_address(void)
{
	struct ifreq request = {.ifr_name = "eth0"};
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int any = socket(AF_INET, SOCK_DGRAM, 0);

	address->sin_family = AF_INET;
	inet_pton(AF_INET, ADDRESS, &address->sin_addr);
	if (ioctl(any, SIOCSIFADDR, &request))
		fail("SIOCSIFADDR");
	inet_pton(AF_INET, "255.255.255.0", &address->sin_addr);
	if (ioctl(any, SIOCSIFNETMASK, &request))
		fail("SIOCSIFNETMASK");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(any, SIOCSIFFLAGS, &request))
		fail("SIOCSIFFLAGS");
	close(any);
}

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
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (open("/dev/ttyS0", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		return 1;
	load_drivers();
	set_address();
	page = progress_map();
	if (!page)
		fail("/dev/mem");
	progress_begin(page, GANGLOAD_MAX_CPUS);
	if (argc > 1 && !strcmp(argv[1], "fio"))
		read_disk();
	for (;;) {
		progress_add(page, 1);
		usleep(100000);
	}
}
