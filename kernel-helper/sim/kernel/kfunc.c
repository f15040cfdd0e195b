// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of a program: kfuncs and helpers by the kernel's names, but for queues (kfunc_dsq.c).
 * compat.bpf.h declares them; one that is missing here is either weak there, and absent, or does
 * not link.
 */
#include <stdio.h>
#include <string.h>

#include "kernel/error.h"
#include "kernel/ext.h"
#include "kernel/idle.h"
#include "kernel/kfunc.h"

/* ---- tasks --------------------------------------------------------------- */

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	p->scx.slice = slice;
	ext_rearm(look(), task_of(p));
	return 1;
}

bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime)
{
	p->scx.dsq_vtime = vtime;
	return 1;
}

s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	return task_of(p)->cpu;
}

bool scx_bpf_task_running(const struct task_struct *p)
{
	return sim_current->cpus[task_of(p)->cpu].current == task_of(p);
}

struct cgroup *scx_bpf_task_cgroup(struct task_struct *p)
{
	return p->sched_task_group->css.cgroup;
}

struct task_struct *bpf_task_from_pid(s32 pid)
{
	struct sim *sim = look();
	u32 i;

	for (i = 0; i < sim->config->tasks; i++)
		if (sim->tasks[i].p.pid == pid)
			return &sim->tasks[i].p;
	return NULL;
}

struct task_struct *bpf_task_acquire(struct task_struct *p)
{
	return p;
}

void bpf_task_release(struct task_struct *p)
{
	(void)p;
}

struct cgroup *bpf_cgroup_from_id(u64 id)
{
	struct sim *sim = look();

	return id && id <= sim->config->groups ? &sim->cgroups[id - 1] : NULL;
}

struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, s32 level)
{
	struct sim *sim = look();
	struct task_group *tg = &sim->groups[cgrp - sim->cgroups];

	while (tg && tg->css.cgroup->level > level)
		tg = tg->parent;
	return tg && tg->css.cgroup->level == level ? tg->css.cgroup : NULL;
}

struct cgroup *bpf_cgroup_acquire(struct cgroup *cgrp)
{
	return cgrp;
}

void bpf_cgroup_release(struct cgroup *cgrp)
{
	(void)cgrp;
}

/* ---- CPUs ---------------------------------------------------------------- */

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	struct sim *sim = lock();
	struct sim_cpu *self = &sim->cpus[sim->event.cpu];
	u64 bit = 1ULL << cpu % 64;

	if (cpu < 0 || (u32)cpu >= sim->config->cpus) {
		ext_error(sim, "invalid CPU %d", cpu);
		return;
	}
	if ((flags & SCX_KICK_IDLE) && (flags & (SCX_KICK_PREEMPT | SCX_KICK_WAIT))) {
		ext_error(sim, "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE");
		return;
	}
	if (flags & SCX_KICK_IDLE) {
		if (sim->cpus[cpu].current)
			return;
		self->kick_idle[cpu / 64] |= bit;
	} else {
		self->kick[cpu / 64] |= bit;
	}
	if (flags & SCX_KICK_PREEMPT)
		self->preempt[cpu / 64] |= bit;
	self->kicking = 1;
}

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 wake_flags, bool *is_idle)
{
	struct sim *sim = lock();
	int cpu = idle_select(sim, task_of(p), prev);

	(void)wake_flags;
	*is_idle = cpu >= 0;
	return cpu >= 0 ? cpu : prev;
}

bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	return idle_claim(look(), cpu);
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags)
{
	return idle_pick(lock(), allowed->bits, flags & 1);
}

s32 scx_bpf_pick_any_cpu(const struct cpumask *allowed, u64 flags)
{
	struct sim *sim = lock();
	int cpu = idle_pick(sim, allowed->bits, flags & 1);
	u32 i;

	for (i = 0; cpu < 0 && i < sim->config->cpus; i++)
		if (allowed->bits[i / 64] >> i % 64 & 1)
			cpu = i;
	return cpu;
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	return mask->bits[cpu / 64 % SIM_WORDS] >> cpu % 64 & 1;
}

bool bpf_cpumask_empty(const struct cpumask *mask)
{
	u32 i;

	for (i = 0; i < SIM_WORDS; i++)
		if (mask->bits[i])
			return 0;
	return 1;
}

u32 bpf_cpumask_weight(const struct cpumask *mask)
{
	u32 i, weight = 0;

	for (i = 0; i < SIM_WORDS; i++)
		weight += __builtin_popcountl(mask->bits[i]);
	return weight;
}

u32 bpf_cpumask_first(const struct cpumask *mask)
{
	u32 i;

	for (i = 0; i < SIM_WORDS; i++)
		if (mask->bits[i])
			return i * 64 + __builtin_ctzl(mask->bits[i]);
	return sim_current->config->cpus;
}

struct task_struct *scx_bpf_cpu_curr(s32 cpu)
{
	struct sim_task *task = sim_current->cpus[cpu].current;

	return task ? &task->p : NULL;
}

u32 scx_bpf_nr_cpu_ids(void)
{
	return sim_current->config->cpus;
}

void scx_bpf_cpuperf_set(s32 cpu, u32 perf)
{
	(void)cpu;
	(void)perf;
}

u32 scx_bpf_cpuperf_cap(s32 cpu)
{
	(void)cpu;
	return 1024;
}

/* ---- time, chance and reports -------------------------------------------- */

u64 bpf_ktime_get_ns(void)
{
	return look()->now + SIM_BOOT;
}

u64 bpf_ktime_get_boot_ns(void)
{
	return look()->now + SIM_BOOT;
}

u64 scx_bpf_now(void)
{
	return sim_current->now + SIM_BOOT;
}

u64 bpf_jiffies64(void)
{
	return (sim_current->now + SIM_BOOT) / sim_current->config->tick_ns;
}

const struct rq runqueues;

u32 bpf_get_smp_processor_id(void)
{
	return sim_current->event.cpu;
}

u32 bpf_get_prandom_u32(void)
{
	return sim_random(&sim_current->random, 1ULL << 32);
}

struct task_struct *bpf_get_current_task_btf(void)
{
	struct sim_task *task = sim_current->cpus[sim_current->event.cpu].current;

	return task ? &task->p : NULL;
}

u64 bpf_get_current_pid_tgid(void)
{
	const struct task_struct *p = bpf_get_current_task_btf();

	return p ? (u64)p->tgid << 32 | p->pid : 0;
}

/* bstr_printf() of what programs use: numbers and strings, each a word of @data. */
static void format(char *to, u32 room, const char *text, const u64 *data, u32 words)
{
	u32 used = 0, word = 0;
	char one[16];

	while (*text && used + 1 < room) {
		u32 length = strcspn(text + 1, "diuxXpsc%") + 2, at = 0, i;

		if (*text != '%' || length >= sizeof(one) - 2 || text[1] == '%') {
			text += *text == '%' && text[1] == '%';
			to[used++] = *text++;
			continue;
		}
		for (i = 0; i < length - 1; i++)
			if (text[i] != 'l' && text[i] != 'h')
				one[at++] = text[i];
		if (text[length - 1] != 's' && text[length - 1] != 'c') {
			one[at++] = 'l';
			one[at++] = 'l';
		}
		one[at++] = text[length - 1] == 'p' ? 'x' : text[length - 1];
		one[at] = 0;
		used += snprintf(to + used, room - used, one, word < words ? data[word] : 0ULL);
		word++;
		text += length;
	}
	to[used < room ? used : room - 1] = 0;
}

void scx_bpf_error_bstr(char *text, unsigned long long *data, u32 size)
{
	char message[256];

	format(message, sizeof(message), text, data, size / 8);
	ext_error(sim_current, "scx_bpf_error: %s", message);
}

void scx_bpf_exit_bstr(s64 code, char *text, unsigned long long *data, u32 size)
{
	char message[256];

	format(message, sizeof(message), text, data, size / 8);
	ext_error(sim_current, "scx_bpf_exit(%lld): %s", code, message);
}

void scx_bpf_dump_bstr(char *text, unsigned long long *data, u32 size)
{
	(void)text;
	(void)data;
	(void)size;
}
