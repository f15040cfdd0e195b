// SPDX-License-Identifier: Apache-2.0
/* From a description to figures: the one call that gangsim/engine.py makes. */
#include <stdio.h>
#include <stdlib.h>

#include "fair/class.h"
#include "kernel/ext.h"
#include "kernel/map.h"
#include "kernel/object.h"
#include "kernel/timer.h"
#include "machine/agenda.h"
#include "machine/heap.h"
#include "machine/latency.h"
#include "machine/line.h"
#include "machine/load.h"
#include "machine/race.h"
#include "run/loop.h"
#include "run/run.h"

#define PF_KTHREAD  0x00200000
#define SCHED_IDLE  5
#define NICE_0_LOAD (1UL << 20)

/* kernel/sched/core.c: sched_prio_to_weight[], nice -20 to 19 */
static const u32 nice_weight[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
	1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
	110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
};

static int allocate(struct sim *sim)
{
	const struct sim_config *config = sim->config;
	u32 i;

	sim->guests = calloc(config->guests + 1, sizeof(*sim->guests));
	sim->tasks = calloc(config->tasks, sizeof(*sim->tasks));
	sim->cpus = calloc(config->cpus, sizeof(*sim->cpus));
	sim->groups = calloc(config->groups, sizeof(*sim->groups));
	sim->cgroups = calloc(config->groups, sizeof(*sim->cgroups));
	if (!sim->guests || !sim->tasks || !sim->cpus || !sim->groups || !sim->cgroups)
		return -1;
	for (i = 0; i < config->tasks; i++) {
		sim->tasks[i].latency = calloc(SIM_LAT_BUCKETS, sizeof(u32));
		if (!sim->tasks[i].latency)
			return -1;
	}
	return heap_init(&sim->heap, agenda_size(sim));
}

static void release(struct sim *sim)
{
	u32 i;

	for (i = 0; sim->tasks && i < sim->config->tasks; i++) {
		free(sim->tasks[i].latency);
		storage_free(sim->tasks[i].p.storage);
	}
	for (i = 0; sim->cgroups && i < sim->config->groups; i++)
		storage_free(sim->cgroups[i].storage);
	race_stop(sim);
	map_free(sim);
	timer_free(sim);
	object_unload(sim);
	free(sim->guests);
	free(sim->tasks);
	free(sim->cpus);
	free(sim->groups);
	free(sim->cgroups);
	heap_free(&sim->heap);
}

static void fill_groups(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->config->groups; i++) {
		const struct sim_group_config *config = &sim->description->groups[i];
		struct task_group *group = &sim->groups[i];
		struct cgroup *cgroup = &sim->cgroups[i];

		group->css.cgroup = cgroup;
		cgroup->kn = &cgroup->node;
		cgroup->node.id = i + 1;
		group->parent = i ? &sim->groups[config->parent] : NULL;
		cgroup->level = i ? group->parent->css.cgroup->level + 1 : 0;
		group->idle = config->idle;
		/* sched_weight_from_cgroup() and scale_load(); an idle group has the least there is
		 */
		group->shares = config->idle ? 3UL << 10 : config->weight * NICE_0_LOAD / 100;
		group->cfs_bandwidth.quota = config->quota_ns;
		group->cfs_bandwidth.period = config->period_ns;
	}
}

static void fill_identity(struct sim *sim, struct sim_task *task)
{
	const struct sim_task_config *config = task->config;
	struct task_struct *p = &task->p;
	u32 weight = config->idle ? 3 : nice_weight[config->nice + 20];

	p->pid = config->pid;
	p->tgid = config->tgid;
	p->flags = config->kthread ? PF_KTHREAD : 0;
	p->policy = config->idle ? SCHED_IDLE : 0;
	p->static_prio = p->prio = p->normal_prio = 120 + config->nice;
	p->group_leader = p;
	p->sched_task_group = &sim->groups[config->group];
	task->css_set.dfl_cgrp = &sim->cgroups[config->group];
	p->cgroups = &task->css_set;
	p->se.load.weight = (unsigned long)weight << 10;
	/* sched_weight_to_cgroup() */
	p->scx.weight = (weight * 100 + 512) / 1024 ? (weight * 100 + 512) / 1024 : 1;
	snprintf(p->comm, sizeof(p->comm), "%s%u", config->guest == SIM_NONE ? "task" : "vcpu",
		 task->id);
}

static void fill_task(struct sim *sim, u32 id)
{
	struct sim_task *task = &sim->tasks[id];
	struct task_struct *p = &task->p;
	u32 i;

	task->id = id;
	task->config = &sim->description->tasks[id];
	task->result = &sim->answer->tasks[id];
	task->cpu = p->wake_cpu = task->config->home;
	fill_identity(sim, task);
	for (i = 0; i < SIM_WORDS; i++) {
		p->cpus_mask.bits[i] = task->config->allowed[i];
		p->nr_cpus_allowed += __builtin_popcountll(task->config->allowed[i]);
	}
	p->cpus_ptr = &p->cpus_mask;
	task->left = task->config->work_ns;
	if (task->config->role == SIM_HOG)
		task->left = SIM_NEVER;
}

static void fill_guest(struct sim *sim, u32 id)
{
	struct sim_guest *guest = &sim->guests[id];
	u32 i;

	guest->config = &sim->description->guests[id];
	guest->result = &sim->answer->guests[id];
	load_init(sim, guest);
	if (guest->config->load == SIM_SLEEP || guest->config->load == SIM_DUTY)
		return;
	for (i = 0; i < guest->config->vcpus; i++) {
		struct sim_task *vcpu = &sim->tasks[guest->config->first + i];

		if (vcpu->config->role == SIM_MEMBER)
			vcpu->left = SIM_NEVER;
	}
}

static void fill_in(struct sim *sim)
{
	u32 i;

	fill_groups(sim);
	for (i = 0; i < sim->config->cpus; i++) {
		sim->cpus[i].held_since = SIM_NEVER;
		sim->cpus[i].tick_phase = sim_random(&sim->random, sim->config->tick_ns);
		if (sim->config->together)
			sim->cpus[i].tick_phase = sim->cpus[0].tick_phase;
	}
	for (i = 0; i < sim->config->tasks; i++)
		fill_task(sim, i);
	for (i = 0; i < sim->config->guests; i++)
		fill_guest(sim, i);
	sim->next_pid = 1000000;
}

static void begin(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->config->tasks; i++)
		agenda_task(sim, &sim->tasks[i], sim->tasks[i].config->start_ns);
	sim->class->start(sim);
}

static void close_accounts(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->config->tasks; i++) {
		struct sim_task *task = &sim->tasks[i];

		if (task->config->role == SIM_HOG)
			task->result->rounds = task->result->run_ns / task->config->work_ns;
		task->result->latency_p50_ns = latency_percentile(task, 500);
		task->result->latency_p99_ns = latency_percentile(task, 990);
	}
	for (i = 0; i < sim->config->guests; i++)
		load_finish(sim, &sim->guests[i]);
}

static int run(struct sim *sim, const char *object)
{
	if (allocate(sim))
		return -1;
	fill_in(sim);
	if (sim->config->scheduler == SIM_GANG && object_load(sim, object))
		return -2;
	begin(sim);
	if (sim->config->scheduler == SIM_GANG && sim->config->race && race_start(sim))
		return -1;
	if (sim->config->scheduler == SIM_GANG && sim->config->line_ns && line_start(sim))
		return -1;
	loop_run(sim);
	line_stop(sim);
	close_accounts(sim);
	sim->class->finish(sim);
	return sim->answer->error[0] ? 1 : 0;
}

/*
 * Run what @description says, with the scheduler in @object where gangs are wanted. Returns 0, 1
 * when the scheduler would have been ejected, -1 when memory is short, -2 when it cannot be loaded.
 * The description is checked by the caller; the answer's figures are zero and have room.
 */
int sim_run(const struct sim_description *description, const struct sim_answer *answer,
	    const char *object)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	int err;

	if (!sim)
		return -1;
	sim->description = description;
	sim->config = description->config;
	sim->answer = answer;
	sim->result = answer->host;
	sim->class = sim->config->scheduler == SIM_GANG ? &ext_class : &fair_class;
	sim->random = sim->config->seed * 2 + 1;
	err = run(sim, object);
	release(sim);
	free(sim);
	return err;
}
