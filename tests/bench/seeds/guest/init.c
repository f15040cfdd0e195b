/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of a Linux guest: runs the load that its command line names, for ever.
 *
 * ebizzy and barrier are its own; hackbench, dbench, pgbench and the compiler of compile, of which
 * some run at once, are the real ones, with a library preloaded that counts.
 */
#include <omp.h>
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "first.h"

#define CHUNK	 32768 /* bytes that ebizzy copies, in pages that are new each time */
#define CHUNKS	 16
#define STEPS	 8000 /* of a barrier's thread between two barriers: 0.2 ms at 8 ns an instruction */
#define POSTGRES "/usr/lib/postgresql/17/bin"
#define NOBODY	 65534

static struct gangload_counters *page;
static long cpus;
static char chunks[CHUNKS][CHUNK];
static volatile long found; /* for the compiler not to leave the search out */

static void on_threads(long number, void *(*work)(void *))
{
	pthread_t thread;

	for (long i = 0; i < number; i++)
		if (pthread_create(&thread, NULL, work, (void *)(i + 1)))
			fail("pthread_create");
	pthread_join(thread, NULL);
}

/* As ebizzy -m does: map a chunk, copy into it, search it, unmap it. */
static void *search(void *number)
{
	unsigned int seed = (long)number;

	for (;;) {
		char *copy = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
		int key = rand_r(&seed);

		if (copy == MAP_FAILED)
			fail("mmap");
		memcpy(copy, chunks[key % CHUNKS], CHUNK);
		found += memchr(copy, key % 256, CHUNK) != NULL;
		munmap(copy, CHUNK);
		progress_add(page, 1);
	}
	return NULL;
}

static void ebizzy(void)
{
	unsigned int seed = 0;

	for (int i = 0; i < CHUNKS; i++)
		for (int at = 0; at < CHUNK; at++)
			chunks[i][at] = rand_r(&seed);
	on_threads(2 * cpus, search);
}

/* A parallel loop of OpenMP: libgomp's threads spin at its barrier, and sleep when that was long in
 * vain. */
static void barrier(void)
{
#pragma omp parallel
	for (;;) {
		for (volatile int step = 0; step < STEPS; step++)
			;
#pragma omp barrier
#pragma omp master
		progress_add(page, 1);
	}
}

static char *const environment[] = {"PATH=/usr/bin", "LC_ALL=C", NULL};
static char *const counted[] = {"PATH=/usr/bin", "LC_ALL=C", "LD_PRELOAD=/count.so", NULL};

static void *compile_files(void *number)
{
	char *words[] = {"/usr/bin/cc1", "-quiet", "-fpreprocessed", "-O1", "/compile.i", "-o",
			 NULL,		 NULL};
	char output[32];
	int status;
	pid_t compiler;

	snprintf(output, sizeof(output), "/tmp/%ld.s", (long)number);
	words[6] = output;
	for (;;) {
		if (posix_spawn(&compiler, words[0], NULL, NULL, words, counted))
			fail(words[0]);
		if (waitpid(compiler, &status, 0) < 0 || status)
			fail(words[0]);
	}
	return NULL;
}

static void compile(void)
{
	on_threads(2 * cpus, compile_files);
}

static void program(char *const *words)
{
	pid_t found;
	int status;

	if (posix_spawn(&found, words[0], NULL, NULL, words, counted))
		fail(words[0]);
	waitpid(found, &status, 0);
	fail(words[0]);
}

static void hackbench(void)
{
	static char *const words[] = {"/usr/bin/hackbench", "-g", "1", "-l", "1000000000", NULL};

	program(words);
}

static void dbench(void)
{
	static char *const words[] = {"/usr/bin/dbench", "-c", "/client.txt", "-D", "/tmp", "-t",
				      "1000000",	 "4",  NULL};

	program(words);
}

/* The server refuses to be root, who alone counts: it is another user's, and its client is ours. */
static void start_server(void)
{
	static char *const words[] = {POSTGRES "/postgres", "-D", "/data", NULL};

	if (fork())
		return;
	if (setgid(NOBODY) || setuid(NOBODY))
		fail("setuid");
	execve(words[0], words, environment);
	fail(words[0]);
}

static void pgbench(void)
{
	static char *const words[] = {POSTGRES "/pgbench",
				      "-n",
				      "-h",
				      "/tmp",
				      "-U",
				      "postgres",
				      "-c",
				      "4",
				      "-j",
				      "2",
				      "-T",
				      "1000000",
				      "postgres",
				      NULL};
	struct stat found;

	start_server();
	while (stat("/tmp/.s.PGSQL.5432", &found))
		usleep(100000);
	sleep(1); /* the server reads its log */
	program(words);
}

static const struct {
	const char *name;
	void (*run)(void);
} loads[] = {
	{"ebizzy", ebizzy}, {"barrier", barrier}, {"hackbench", hackbench},
	{"dbench", dbench}, {"compile", compile}, {"pgbench", pgbench},
};

static void prepare(void)
{
	first_console();
	mount("proc", "/proc", "proc", 0, NULL);
	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	page = first_page(cpus);
}

int main(int argc, char **argv)
{
	prepare();
	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		if (argc > 1 && !strcmp(loads[i].name, argv[1]))
			loads[i].run();
	fprintf(stderr, "no such load: %s\n", argc > 1 ? argv[1] : "none");
	return 1;
}
