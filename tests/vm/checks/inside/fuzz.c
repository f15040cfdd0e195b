// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz CALLS SEED TGID CGROUP: that many ioctls of /dev/gang with arguments made to hurt, from two
 * processes at once, one of which is not the one that may change anything. Prints how many calls
 * each made and how many of every command were taken; ends with 0 when all came back.
 *
 * Arguments are random bytes, or a valid call with one word spoiled, or a valid call; the buffer is
 * sometimes unmapped, unaligned, or cut off by the end of a page.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gang_abi.h"

static const unsigned int commands[] = {GANG_IOC_VERSION,  GANG_IOC_SET_DOMAIN,
					GANG_IOC_SET_GANG, GANG_IOC_SET_CGROUP,
					GANG_IOC_STATS,	   GANG_IOC_COUNTERS};
static const char *const names[] = {"version",	  "set_domain", "set_gang",
				    "set_cgroup", "stats",	"counters"};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))
static const uint32_t edges[] = {0,    1,    2,		 63,	     64,	 65,
				 1023, 1024, 0x7fffffff, 0x80000000, 0xffffffff, 10001};

static uint64_t state;
static int cgroup_fd;

static uint32_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 16;
}

static uint32_t edge(void)
{
	return edges[rnd() % (sizeof(edges) / sizeof(edges[0]))];
}

/* A call that would be taken, most of the time. */
static void valid(unsigned int command, void *buffer, uint32_t tgid)
{
	struct gang_ioc_domain *domain = buffer;
	struct gang_ioc_gang *gang = buffer;
	struct gang_ioc_cgroup *cgroup = buffer;

	memset(buffer, 0, _IOC_SIZE(command));
	*(uint32_t *)buffer = GANG_ABI_VERSION;
	if (command == GANG_IOC_SET_DOMAIN) {
		domain->domain = rnd() % 3;
		domain->cpus.columns = rnd() % 3;
		domain->cpus.slot_us = rnd() % 200000;
		domain->cpus.cpu[0] = rnd() % 2;
		domain->cpus.cpu[1] = 1 - domain->cpus.cpu[0];
	} else if (command == GANG_IOC_SET_GANG) {
		gang->gang = 1 + rnd() % 3;
		gang->domain = rnd() % 3;
		gang->weight = 1 + rnd() % 10000;
		gang->mode = rnd() % 4;
		gang->tgid = tgid;
		gang->seats = rnd() % 3;
		gang->seat[0].tid = tgid + rnd() % 3;
		gang->seat[0].column = rnd() % 2;
		gang->seat[1].tid = tgid + rnd() % 3;
		gang->seat[1].column = rnd() % 3;
	} else if (command == GANG_IOC_SET_CGROUP) {
		cgroup->gang = 1 + rnd() % 3;
		cgroup->domain = rnd() % 3;
		cgroup->weight = 100;
		cgroup->fd = rnd() % 2 ? (uint32_t)cgroup_fd : rnd() % 5;
	} else if (command == GANG_IOC_STATS) {
		gang->gang = rnd() % 4;
	}
}

static void *prepare(unsigned int command, char *page, uint32_t tgid)
{
	uint32_t words = _IOC_SIZE(command) / 4, kind = rnd() % 64, i;
	uint32_t *buffer = (uint32_t *)page;

	if (kind == 0)
		return NULL;
	if (kind == 1)
		return (void *)(uintptr_t)((uint64_t)edge() << 32 | edge());
	if (kind == 2) /* the struct crosses into a page that is not there */
		return page + 4096 - 1 - rnd() % 8;
	if (kind == 3)
		buffer = (uint32_t *)(page + 1);
	if (kind < 63) {
		for (i = 0; i < words; i++)
			((volatile uint32_t *)buffer)[i] = rnd() % 4 ? edge() : rnd();
		if (kind & 1)
			buffer[0] = GANG_ABI_VERSION;
		return buffer;
	}
	valid(command, buffer, tgid);
	/* A valid call takes a grace period or two: make it seldom. */
	if (rnd() % 8)
		buffer[words > 1 ? rnd() % (words > 8 ? 8 : words) : 0] = edge();
	return buffer;
}

static int attack(long calls, uint64_t seed, uint32_t tgid, const char *name)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int device = open("/dev/gang", O_RDWR);
	long taken[COMMANDS] = {}, i;

	if (device < 0 || page == MAP_FAILED || munmap(page + 4096, 4096))
		return 1;
	state = seed;
	for (i = 0; i < calls; i++) {
		unsigned int which = rnd() % COMMANDS, command = commands[which];
		void *argument;

		if (!(rnd() % 32))
			command = rnd();
		argument = prepare(_IOC_SIZE(command) < 2048 ? command : 0, page, tgid);
		if (ioctl(device, command, argument) >= 0)
			taken[which] += command == commands[which];
		if (!(rnd() % 100000)) {
			close(device);
			device = open("/dev/gang", O_RDWR);
		}
	}
	printf("%s: %ld calls, taken:", name, calls);
	for (i = 0; i < (long)COMMANDS; i++)
		printf(" %s=%ld", names[i], taken[i]);
	printf("\n");
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 1000000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	uint32_t tgid = argc > 3 ? atol(argv[3]) : getpid();
	int status = 0, error;
	pid_t other;

	cgroup_fd = open(argc > 4 ? argv[4] : "/", O_RDONLY | O_DIRECTORY);
	other = fork();
	if (other == 0)
		return attack(calls / 2, seed * 0x9e3779b97f4a7c15ULL + 1, tgid, "second");
	error = attack(calls - calls / 2, seed * 0x9e3779b97f4a7c15ULL + 2, tgid, "first");
	waitpid(other, &status, 0);
	return error || status;
}
