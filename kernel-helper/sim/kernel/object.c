// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler's code. Its globals are its state, so every run has its own copy of the object:
 * what the dynamic linker sees as another file it loads anew. And what its calls cost: a sum of
 * what they call and of the rounds of their loops, at the scenario's prices.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel/object.h"
#include "machine/agenda.h"

#define PAGE 4096UL

/* The price of the scheduler's present call grows by @ns. */
void price(u64 ns)
{
	sim_current->event.ns += ns;
}

void object_begin(struct sim *sim)
{
	if (sim->event.depth++)
		return;
	sim->event.ns = 0;
	*sim->steps = 0;
}

/* A call is done, which costs @base beside what it did. Its CPU pays, and then kicks whom it has
 * to. */
void object_end(struct sim *sim, u64 base)
{
	struct sim_cpu *cpu = &sim->cpus[sim->event.cpu];
	u64 ns;

	sim->event.ns += base;
	sim->result->ops++;
	if (--sim->event.depth)
		return;
	ns = sim->event.ns + *sim->steps * sim->config->step_ns;
	sim_decide(sim, ns);
	if (cpu->kicking && !sim->event.in_schedule)
		agenda_flush(sim, sim->event.cpu, sim->now + sim->event.spent);
}

static void *load_copy(const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("scheduler", MFD_CLOEXEC);
	struct stat stat = {0};
	char name[64];
	void *handle = NULL;

	if (from >= 0 && to >= 0 && !fstat(from, &stat) &&
	    sendfile(to, from, NULL, stat.st_size) == stat.st_size) {
		/* a name of its own: the linker knows what it has loaded by name, too */
		snprintf(name, sizeof(name), "/proc/%d/fd/%d", getpid(), to);
		handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			fprintf(stderr, "%s\n", dlerror());
	}
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
	return handle;
}

/* A constant that is set before load: libbpf writes to .rodata. */
static void set_const(const volatile void *at, u32 size, u32 value)
{
	unsigned long page = (unsigned long)at & -PAGE;

	if (mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE))
		abort();
	if (size == sizeof(_Bool))
		*(volatile _Bool *)(unsigned long)at = value;
	else
		*(volatile u32 *)(unsigned long)at = value;
}

int object_load(struct sim *sim, const char *path)
{
	int (*prepare)(const struct sim_config *, void (*)(const volatile void *, u32, u32));

	sim_current = sim;
	sim->object = load_copy(path);
	if (!sim->object)
		return -1;
	sim->steps = dlsym(sim->object, "shim_steps");
	sim->ops = dlsym(sim->object, "gang_ops");
	prepare = dlsym(sim->object, "shim_prepare");
	return !sim->steps || !sim->ops || !prepare || prepare(sim->config, set_const) ? -1 : 0;
}

int object_order(struct sim *sim)
{
	int (*order)(const struct sim_description *) = dlsym(sim->object, "shim_order");

	return order ? order(sim->description) : -1;
}

int object_reorder(struct sim *sim)
{
	int (*reorder)(const struct sim_description *, u64) = dlsym(sim->object, "shim_reorder");

	return reorder ? reorder(sim->description, sim->now) : -1;
}

void object_collect(struct sim *sim)
{
	void (*collect)(const struct sim_description *, const struct sim_answer *) =
		dlsym(sim->object, "shim_collect");

	if (collect)
		collect(sim->description, sim->answer);
}

void object_unload(struct sim *sim)
{
	if (sim->object)
		dlclose(sim->object);
}
