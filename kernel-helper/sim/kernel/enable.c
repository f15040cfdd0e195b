// SPDX-License-Identifier: Apache-2.0
/*
 * How a scheduler is enabled and learns of tasks and groups, and the watchdog that ejects it:
 * scx_enable(), scx_init_task(), scx_watchdog_workfn() of kernel/sched/ext.c.
 */
#include "kernel/dsq.h"
#include "kernel/enable.h"
#include "kernel/error.h"
#include "kernel/idle.h"
#include "kernel/map.h"
#include "kernel/object.h"
#include "kernel/ops.h"
#include "kernel/scx.h"
#include "machine/agenda.h"

void ext_init_task(struct sim *sim, struct sim_task *task, int fork)
{
	struct scx_init_task_args args = {
		.fork = fork,
		.cgroup = task->p.sched_task_group->css.cgroup,
	};

	task->p.scx.slice = SCX_SLICE_DFL;
	task->p.scx.dsq_vtime = 0;
	task->ddsp_dsq = SCX_DSQ_INVALID;
	if (sim->ops->init_task && OP_RET(sim, sim->config->op_ns, init_task, &task->p, &args))
		ext_error(sim, "ops.init_task() failed for %s[%d]", task->p.comm, task->p.pid);
	OP(sim, enable, &task->p);
	OP(sim, set_weight, &task->p, task->p.scx.weight);
}

void ext_exit_task(struct sim *sim, struct sim_task *task)
{
	struct scx_exit_task_args args = {0};

	OP(sim, disable, &task->p);
	OP(sim, exit_task, &task->p, &args);
	storage_free(task->p.storage);
}

static void init_group(struct sim *sim, u32 group)
{
	const struct task_group *tg = &sim->groups[group];
	struct scx_cgroup_init_args args = {
		.weight = sim->description->groups[group].weight,
		.bw_period_us = tg->cfs_bandwidth.period / 1000,
		.bw_quota_us = tg->cfs_bandwidth.quota == SIM_NEVER ?
				       SIM_NEVER :
				       tg->cfs_bandwidth.quota / 1000,
	};

	if (sim->ops->cgroup_init &&
	    OP_RET(sim, sim->config->op_ns, cgroup_init, tg->css.cgroup, &args))
		ext_error(sim, "ops.cgroup_init() failed");
	if (tg->idle)
		OP(sim, cgroup_set_idle, tg->css.cgroup, 1);
}

/* A task that did not run for that long ejects the scheduler: scx_watchdog_workfn(). */
void ext_watch(struct sim *sim)
{
	u32 ms = sim->ops->timeout_ms ? sim->ops->timeout_ms : SCX_WATCHDOG_MAX_TIMEOUT, i;
	u64 timeout = ms * 1000000ULL;

	for (i = 0; i < sim->config->tasks; i++) {
		const struct sim_task *task = &sim->tasks[i];

		if ((task->p.scx.flags & SCX_TASK_QUEUED) && !task->p.on_cpu &&
		    sim->now > task->runnable_at + timeout)
			ext_error(sim, "%s[%d] failed to run for %llu.%03llus", task->p.comm,
				  task->p.pid, (sim->now - task->runnable_at) / 1000000000,
				  (sim->now - task->runnable_at) / 1000000 % 1000);
	}
	agenda_timer(sim, 0, sim->now + timeout / 2);
}

/* The daemon takes marks away: of all guests at once, at the time of the last one. */
void ext_reorder(struct sim *sim)
{
	object_begin(sim);
	if (object_reorder(sim))
		ext_error(sim, "an order of the daemon was refused");
	object_end(sim, sim->config->op_ns);
}

/* scx_enable() */
void ext_start(struct sim *sim)
{
	u32 i;

	for (i = 0; i < sim->config->cpus; i++) {
		sim->cpus[i].local.id = SCX_DSQ_LOCAL;
		idle_note(sim, i, 1);
	}
	sim->global.id = SCX_DSQ_GLOBAL;
	if (sim->ops->init && OP_RET(sim, sim->config->op_ns, init))
		ext_error(sim, "ops.init() failed");
	for (i = 0; i < sim->config->groups; i++)
		init_group(sim, i);
	for (i = 0; i < sim->config->tasks; i++)
		if (!sim_is_unborn(&sim->tasks[i]))
			ext_init_task(sim, &sim->tasks[i], 0);
	if (object_order(sim))
		ext_error(sim, "an order of the daemon was refused");
	for (i = 0; i < sim->config->guests; i++)
		if (sim->description->guests[i].unmark_ns != SIM_NEVER)
			agenda_timer(sim, SIM_DAEMON, sim->description->guests[i].unmark_ns);
	ext_watch(sim);
}

void ext_finish(struct sim *sim)
{
	object_collect(sim);
	dsq_free(sim);
}
