// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon's orders to the scheduler and its readings (daemon/gangd/actuate/sched_ext.py), done
 * with its maps and programs. Included by shim/object.c behind the scheduler itself.
 */
#include "model/describe.h"

static int order_cpus(const struct sim_config *config)
{
	__u32 i;

	for (i = 0; i < config->cpus; i++) {
		struct gang_cpu_args args = {
			.cpu = i,
			.sibling = i % config->threads,
			.threads = config->threads,
			.new_cache = config->starts[i / 64] >> i % 64 & 1,
		};

		if (add_cpu(&args))
			return -EINVAL;
	}
	return 0;
}

static int order_gang(const struct sim_description *sim, const struct sim_guest_config *guest)
{
	struct gang_args args = {
		.gang = guest->gang,
		.cache = guest->domain,
		.mode = guest->mode,
	};
	__u32 i;

	for (i = 0; i < guest->vcpus; i++) {
		const struct sim_task_config *task = &sim->tasks[guest->first + i];
		struct gang_member member = {.tgid = task->tgid, .gang = guest->gang, .vcpu = i};

		bpf_map_update_elem(&members, &task->pid, &member, 0);
		args.caches |= 1ULL << cpu_of(task->home)->cache;
	}
	return set_gang(&args);
}

/* Before it is loaded and attached: its constants and flags, and the CPUs. */
int shim_prepare(const struct sim_config *config,
		 void (*set_const)(const volatile void *, __u32, __u32))
{
	set_const(&nr_cpus, sizeof(nr_cpus), config->cpus);
	set_const(&forgets, sizeof(forgets), config->forgets);
#ifdef SHIM_HELP
	set_const(&help, sizeof(help), 1);
#endif
	/* ENQ_LAST, ENQ_MIGRATION_DISABLED, ALLOW_QUEUED_WAKEUP */
	gang_ops.flags = 1 << 1 | 1 << 4 | 1 << 5;
	return order_cpus(config);
}

/* Once it is attached: how long turns are, then the guests. */
int shim_order(const struct sim_description *sim)
{
	struct gang_turn_args turns = {.turn_us = sim->config->turn_ns / 1000};
	int err = set_turns(&turns);
	__u32 i;

	for (i = 0; !err && i < sim->config->guests; i++)
		if (sim->guests[i].gang)
			err = order_gang(sim, &sim->guests[i]);
	return err;
}

/* Carry out the orders that are due with the scheduler loaded: marks go. */
int shim_reorder(const struct sim_description *sim, __u64 now)
{
	__u32 i, vcpu;
	int err = 0;

	for (i = 0; !err && i < sim->config->guests; i++) {
		const struct sim_guest_config *guest = &sim->guests[i];
		struct gang_args args = {.gang = guest->gang, .mode = GANG_MODE_OFF};

		if (!guest->gang || guest->unmark_ns > now)
			continue;
		for (vcpu = 0; vcpu < guest->vcpus; vcpu++)
			bpf_map_delete_elem(&members, &sim->tasks[guest->first + vcpu].pid);
		err = set_gang(&args);
	}
	return err;
}

static void collect_stats(const struct sim_config *config, const struct sim_answer *answer)
{
	struct gang_sched_stats sum = {};
	__u64 *to = (__u64 *)&sum;
	__u32 cpu, i;

	for (cpu = 0; cpu < config->cpus; cpu++) {
		const __u64 *from = bpf_map_lookup_percpu_elem(&sched_stats, &zero, cpu);

		for (i = 0; from && i < sizeof(sum) / sizeof(*to); i++)
			to[i] += from[i];
	}
	__builtin_memcpy(answer->stats, &sum, sizeof(sum));
}

/* At the end: its own account. */
void shim_collect(const struct sim_description *sim, const struct sim_answer *answer)
{
	__u32 i;

	collect_stats(sim->config, answer);
	for (i = 0; i < sim->config->guests; i++) {
		__u32 gang = sim->guests[i].gang;
		const struct gang_stats *stats = bpf_map_lookup_elem(&gang_stats, &gang);
		struct sim_guest_result *result = &answer->guests[i];

		if (!gang || !stats)
			continue;
		result->starts = stats->turns;
		result->whole = stats->whole;
		result->skew_ns = stats->skew_ns;
		result->skew_max_ns = stats->skew_max_ns;
		result->ended_early = stats->ended_early;
		result->seats_wanted = stats->seats_wanted;
		result->seats_had = stats->seats_had;
		result->member_ns = stats->run_ns;
		result->apart_ns = stats->apart_ns;
		result->borrowed_ns = stats->borrowed_ns;
		result->throttled_ns = stats->throttled_ns;
	}
}
