/* SPDX-License-Identifier: GPL-2.0 */
/* State of the scheduler: tasks, CPUs, slots, counters, and how they are reached. */
#ifndef GANG_STATE_BPF_H
#define GANG_STATE_BPF_H

#define GANG_FOR(i, n) bpf_for(i, 0, n)
#define GANG_FORGET(x) asm volatile("" : "+r"(x))
#include "daemon.bpf.h"
#include "gang_core.h"

/* only stealing is done with it here: which idle CPU a task gets is the kernel's own choice */
#define GANG_CPUSET		 const struct cpumask
#define GANG_ALLOWED(allow, cpu) bpf_cpumask_test_cpu(cpu, allow)
#include "gang_search.h"

#define MSEC		   1000000ULL
#define OTHERS_SLICE	   (3 * MSEC)
#define OTHERS_LAG	   (OTHERS_SLICE * GANG_WEIGHT_DEFAULT / GANG_WEIGHT_MIN)
#define OTHERS_WAIT	   (1000 * MSEC) /* of ordinary tasks' time: the longest that one waits */
#define OTHERS_SHARE_SHIFT 5		 /* 1/32: what ordinary tasks may take out of gang slots */
#define CREDIT_MIN	   (MSEC / 10)
#define TAKEN_NS	   (10 * MSEC) /* without a task of ours while some wait: a higher class has it */
#define RESCUE_NS	   (20 * MSEC) /* how often a CPU looks for one that is taken */
#define SHARED_SLICE	   (5 * MSEC)  /* of a member that shares its column with a sibling */
#define COST_SAMPLE	   64	       /* of how many operations one is timed */
#define NO_CPU		   0xffffffff
#define NOBODY		   0xffff /* gang_cpu.current of an idle CPU, and gang_cpu.claim of a free one */

const volatile u32 nr_cpus = 1; /* set before load: possible CPUs */

struct gang_task {
	u64 vtime;
	u64 weighed;  /* when its cgroups were last read */
	u64 woke;     /* when it last became runnable, and ... */
	u64 together; /* ... what its gang's gang_state.together was then */
	u32 epoch;    /* of members when gang and column were looked up */
	u32 cpu;
	u16 gang; /* GANG_OTHERS for an ordinary task */
	u8 column;
	u8 pad;
	u32 weight; /* cgroup scale, nice and cgroups multiplied */
	u32 load;   /* what of it is counted in gang_cpu.load ... */
	u32 where;  /* ... of this CPU */
};

struct gang_cpu {
	u64 start;   /* when the current task was last charged, 0 when idle */
	u64 since;   /* when it came */
	u64 left;    /* when the last task left */
	u64 looked;  /* when it was last looked for tasks behind a higher class */
	u64 vclock;  /* virtual time of the ordinary tasks here */
	u64 credit;  /* ns that ordinary tasks may still take out of gang slots */
	u16 current; /* gang on this CPU, GANG_OTHERS, or NOBODY */
	u8 domain;
	u8 column;
	u8 grouped;  /* belongs to a gang domain */
	u8 choosing; /* dispatch() has claimed, its choice does not run yet */
	u8 pad[2];
	u32 strays;    /* members may wait in a queue that is served no more */
	u32 claim;     /* what this CPU runs or is about to, for the others of its core */
	u32 waits;     /* idle until its core is free */
	u32 load;      /* weights of the ordinary tasks that are runnable here, added up */
	u32 asked;     /* by ask() */
	u64 rightmost; /* the latest virtual time queued here */
	u64 used;      /* by the owner of the column in the present slot, ns */
};

struct slot_timer {
	struct bpf_timer timer;
};

static struct gang_state gangs[GANG_MAX_GANGS];
static struct gang_slot slots[GANG_MAX_DOMAINS];
static struct gang_cpu cpus[GANG_MAX_CPUS];
static u32 asked_weights[GANG_MAX_GANGS]; /* by the mark; the guest's cgroups multiply it */
static volatile u32 ended; /* the kernel has thrown us out: nothing is decided any more */
static struct gang_search search;
static u32 epoch = 1; /* raised whenever membership changes */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gang_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GANG_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct gang_member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct slot_timer);
} timers SEC(".maps");

/* This CPU's part of the scheduler's account. */
static struct gang_sched_stats *own_stats(void)
{
	return bpf_map_lookup_elem(&sched_stats, &zero);
}

#define count(field)                                                                               \
	do {                                                                                       \
		struct gang_sched_stats *__stats = own_stats();                                    \
		if (__stats)                                                                       \
			__stats->field++;                                                          \
	} while (0)

#define count_bucket(field, ns)                                                                    \
	do {                                                                                       \
		struct gang_sched_stats *__stats = own_stats();                                    \
		if (__stats)                                                                       \
			__stats->field[gang_bucket(ns) % GANG_BUCKETS]++;                          \
	} while (0)

/* Our own time: one operation in COST_SAMPLE is timed, by a counter that grows with them. */
#define cost_begin(stats, counter)                                                                 \
	((stats) && !((stats)->counter % COST_SAMPLE) ? bpf_ktime_get_ns() : 0)

#define cost_end(stats, kind, begin)                                                               \
	do {                                                                                       \
		if ((stats) && (begin)) {                                                          \
			(stats)->kind##_ns += bpf_ktime_get_ns() - (begin);                        \
			(stats)->kind##_samples++;                                                 \
		}                                                                                  \
	} while (0)

/* The masks keep the verifier's bounds; callers pass values that are in range. */
static struct gang_cpu *cpu_of(u32 cpu)
{
	return &cpus[cpu & (GANG_MAX_CPUS - 1)];
}

static struct gang_state *gang_of(u32 gang)
{
	return &gangs[gang & (GANG_MAX_GANGS - 1)];
}

static struct gang_slot *slot_of(u32 domain)
{
	return &slots[domain & (GANG_MAX_DOMAINS - 1)];
}

static u64 queue_of(u32 gang, u32 cpu)
{
	return ((u64)gang << 16) | cpu;
}

static u64 word_of(struct gang_slot *slot)
{
	return *(volatile u64 *)&slot->word;
}

static u64 column_bit(u32 column)
{
	return 1ULL << (column & (GANG_DOMAIN_CPUS - 1));
}

/* Remember what was decided, for the report of an ejection. Two at once may share an entry. */
static void note_decision(u16 kind, u32 domain, u32 gang)
{
	struct gang_decisions *ring = bpf_map_lookup_elem(&decisions, &zero);
	struct gang_decision *one;

	if (!ring)
		return;
	one = &ring->last[__sync_fetch_and_add(&ring->next, 1) % GANG_DECISIONS];
	one->time = bpf_ktime_get_ns();
	one->cpu = bpf_get_smp_processor_id();
	one->gang = gang;
	one->kind = kind;
	one->domain = domain;
	one->generation = gang_word_generation(word_of(slot_of(domain)));
}

/* ---- who a task is ------------------------------------------------------ */

static void look_up_member(struct gang_task *task, struct task_struct *p)
{
	u32 tid = p->pid;
	struct gang_member *member = bpf_map_lookup_elem(&members, &tid);

	task->gang = GANG_OTHERS;
	if (!member || member->tgid != p->tgid)
		return;
	task->cpu = member->cpu;
	task->column = cpu_of(member->cpu)->column;
	task->gang = member->gang;
}

/* The scheduler's own record of @p; membership is looked up again only when it changed. */
static struct gang_task *task_of(struct task_struct *p)
{
	struct gang_task *task = bpf_task_storage_get(&tasks, p, 0, 0);

	if (task && task->epoch != epoch) {
		task->epoch = epoch;
		look_up_member(task, p);
	}
	return task;
}

/*
 * May @p run on @cpu? Global, as is all that is long or verified dearly: the verifier checks such a
 * function once, others at every call and once more for every state they are called in. This one
 * is short, but wherever a pointer in a task is read the verifier looks for a few names among
 * those of all types of the kernel (btf_nested_type_is_trusted()), which takes it longer than
 * a thousand instructions.
 */
__noinline int is_allowed(struct task_struct *p __arg_trusted, u32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/*
 * A member that may not run where it was placed is scheduled as an ordinary task, and so are all of
 * a gang without slots (GANG_MODE_BALANCE).
 */
static bool is_member(struct gang_task *task, struct task_struct *p)
{
	return task->gang && gang_of(task->gang)->mode >= GANG_MODE_RELAXED &&
	       is_allowed(p, task->cpu);
}

/* For whom @p runs: its gang, or the ordinary tasks. */
static u32 party_of(struct gang_task *task, struct task_struct *p)
{
	return task && is_member(task, p) ? task->gang : GANG_OTHERS;
}

#endif /* GANG_STATE_BPF_H */
