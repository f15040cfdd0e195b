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

#include "sim.h"

#define PAGE 4096UL

struct sim_object {
	void *handle;
	unsigned long long *steps;
	u32 depth; /* of calls within calls */
	u64 ns;	   /* price of the present call so far */
};

__thread struct sim *sim_current;

/* What a call of the scheduler costs grows by @ns. */
void price(u64 ns)
{
	sim_current->object->ns += ns;
}

void object_begin(struct sim *sim)
{
	if (sim->object->depth++)
		return;
	sim->object->ns = 0;
	*sim->object->steps = 0;
}

/* A call is done, which costs @base beside what it did. Its CPU pays, and then kicks whom it has
 * to. */
void object_end(struct sim *sim, u64 base)
{
	struct sim_cpu *cpu = &sim->cpus[sim->cpu];
	struct sim_object *object = sim->object;
	u64 ns;

	object->ns += base;
	sim->result->ops++;
	if (--object->depth)
		return;
	ns = object->ns + *object->steps * sim->config->step_ns;
	sim->spent += ns;
	sim->result->op_ns += ns;
	cpu->debt += ns;
	if (cpu->kicking && !sim->in_schedule)
		host_flush_at(sim, sim->cpu, sim->now + sim->spent);
}

void object_save(struct sim *sim, u64 *ns, u64 *steps, u32 *depth)
{
	*ns = sim->object->ns;
	*steps = *sim->object->steps;
	*depth = sim->object->depth;
}

void object_restore(struct sim *sim, u64 ns, u64 steps, u32 depth)
{
	sim->object->ns = ns;
	*sim->object->steps = steps;
	sim->object->depth = depth;
}

/* Is @at something that the scheduler, which is being called, shares with itself? */
int object_inside(const struct sim *sim, const volatile void *at)
{
	return sim->object->depth && at != sim->object->steps;
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
static void set_const(const volatile void *at, u32 value)
{
	unsigned long page = (unsigned long)at & -PAGE;

	if (mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE))
		abort();
	*(volatile u32 *)(unsigned long)at = value;
}

int object_load(struct sim *sim, const char *path)
{
	int (*prepare)(const struct sim_config *, void (*)(const volatile void *, u32));
	struct sim_object *object = calloc(1, sizeof(*object));

	if (!object)
		return -1;
	sim->object = object;
	sim_current = sim;
	object->handle = load_copy(path);
	if (!object->handle)
		return -1;
	object->steps = dlsym(object->handle, "shim_steps");
	sim->ops = dlsym(object->handle, "gang_ops");
	prepare = dlsym(object->handle, "shim_prepare");
	return !object->steps || !sim->ops || !prepare || prepare(sim->config, set_const) ? -1 : 0;
}

int object_order(struct sim *sim)
{
	int (*order)(const struct sim_description *) = dlsym(sim->object->handle, "shim_order");

	return order ? order(sim->description) : -1;
}

void object_collect(struct sim *sim)
{
	void (*collect)(const struct sim_description *, const struct sim_answer *) =
		dlsym(sim->object->handle, "shim_collect");

	if (collect)
		collect(sim->description, sim->answer);
}

void object_unload(struct sim *sim)
{
	if (sim->object && sim->object->handle)
		dlclose(sim->object->handle);
	free(sim->object);
}
