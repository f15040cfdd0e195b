// SPDX-License-Identifier: Apache-2.0
/* From a description to figures: the one call that gangsim/engine.py makes. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int allocate(struct sim *sim)
{
	const struct sim_config *config = sim->config;

	/* a domain's slot timer, or a CPU's look for a busier one */
	sim->timers = config->domains > config->cpus ? config->domains : config->cpus;
	sim->guests = calloc(config->guests, sizeof(*sim->guests));
	sim->vcpus = calloc(sim->vcpu_count, sizeof(*sim->vcpus));
	sim->cpus = calloc(config->cpus, sizeof(*sim->cpus));
	return !sim->guests || !sim->vcpus || !sim->cpus ||
	       sim_heap_init(&sim->heap, 2 * config->cpus + sim->vcpu_count + sim->timers);
}

static void release(struct sim *sim)
{
	__u32 i;

	for (i = 0; sim->cpus && i < sim->config->cpus; i++)
		free(sim->cpus[i].list);
	free(sim->guests);
	free(sim->vcpus);
	free(sim->cpus);
	sim_heap_free(&sim->heap);
}

static void fill_in(struct sim *sim, const struct sim_guest_config *guests,
		    const struct sim_place *places, const __u32 *homes,
		    struct sim_guest_result *results)
{
	__u32 i, j;

	for (i = 0; i < sim->config->cpus; i++) {
		sim->cpus[i].place = places[i];
		sim->cpus[i].current = SIM_NONE;
		sim->cpus[i].held_since = SIM_NEVER;
	}
	for (i = 0; i < sim->config->guests; i++) {
		sim->guests[i].config = &guests[i];
		sim->guests[i].result = &results[i];
		for (j = 0; j < guests[i].vcpus; j++) {
			struct sim_vcpu *vcpu = &sim->vcpus[guests[i].first + j];

			vcpu->guest = i;
			vcpu->index = j;
			vcpu->home = homes[guests[i].first + j];
		}
		load_init(sim, &sim->guests[i]);
	}
}

/*
 * Run what @config and the arrays describe: @guests; a place for each CPU; a home CPU for each
 * vCPU. Fills @result, one @guest_results each, and at most config->traces of @traces. Returns 0,
 * or -1 when memory is short. The description is checked by the caller.
 */
int sim_run(const struct sim_config *config, const struct sim_guest_config *guests,
	    const struct sim_place *places, const __u32 *homes, struct sim_result *result,
	    struct sim_guest_result *guest_results, struct sim_segment *traces)
{
	struct sim sim = {
		.config = config,
		.class = config->scheduler == SIM_GANG ? &gang_class : &fair_class,
		.result = result,
		.traces = traces,
		.random = config->seed * 2 + 1,
	};
	__u32 i;
	int err;

	memset(result, 0, sizeof(*result));
	memset(guest_results, 0, config->guests * sizeof(*guest_results));
	for (i = 0; i < config->guests; i++)
		sim.vcpu_count += guests[i].vcpus;
	err = allocate(&sim);
	if (!err) {
		fill_in(&sim, guests, places, homes, guest_results);
		host_loop(&sim);
	}
	release(&sim);
	return err ? -1 : 0;
}
