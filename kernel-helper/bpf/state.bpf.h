/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler's state: tasks, CPUs, gang domains, gangs, control groups.
 *
 * A task's words change on the CPU whose run queue holds it, under that queue's lock, a clock's
 * under the lock of that clock; the comments below name the words that others may change meanwhile.
 */
#ifndef STATE_BPF_H
#define STATE_BPF_H

#include "compat.bpf.h"
#include "gang_abi.h"
#include "clock.h"
#include "request.h"
#include "shared.bpf.h"
#include "turn.h"
#include "weight.h"

/*
 * A function that the verifier looks at once, by itself: what callers know about its arguments is
 * forgotten, and the number of states does not multiply. Hence numbers instead of pointers.
 */
#define GLOBAL __noinline

#define MSEC	    FAIR_MSEC
#define NOBODY	    0xffffffffU
#define MAX_GROUPS  32768
#define DEPTH	    24 /* of nested groups */
#define DOMAIN_CPUS GANG_DOMAIN_CPUS
#define GANGS	    2048 /* those of the daemon, then those that nobody marked */
#define LIST	    256	 /* gangs of a domain */
#define BOUND_CLOCK GANG_MAX_CPUS
#define MAX_CLOCKS  (2 * GANG_MAX_CPUS)

enum task_origin {
	TASK_OLD = 0, /* ran before */
	TASK_FOUND,   /* was there when the scheduler was loaded */
	TASK_FORKED,  /* begins with its parent's account */
};

struct fair_task {
	u64 v;	   /* virtual time, by its clock */
	u64 w;	   /* flat weight, as counted in its clock */
	u64 burst; /* ns that it runs between two sleeps, on average; FAIR_NEVER: it never slept */
	u64 ran;   /* since it last slept */
	u64 slept; /* when it last did */
	u64 owed;  /* ns of lag that it had then */
	u64 util;  /* CPU time from sleep to sleep over the time between them, as a rate */
	u64 woke;  /* when it last woke a thread of its process, or another one at which it waits */
	u64 queue; /* where it waits */
	u64 since; /* when it was queued */
	u64 room;  /* domains all of whose CPUs it may run on, a bit each */
	u64 task_group; /* of the kernel, when `group` was looked up */
	u32 epoch;	/* of members, when its gang was looked up */
	u32 group;
	u32 own;     /* its weight among the tasks of its group ... */
	u32 counted; /* ... and the effective one, as counted there */
	u32 allowed; /* CPUs, when `room` was looked up; 0: it was not */
	u16 clock;   /* a domain, or BOUND_CLOCK + CPU */
	u16 domain;
	u16 gang;
	u16 adopts;  /* the gang that it is of once it is queued again */
	u32 delayed; /* it sleeps, and is counted yet: where that is noted, + 1 */
	u8 on;	     /* counted in its clock and its groups */
	u8 bound;    /* it may not run on some CPU of its domain, or of its gang's */
	u8 origin;
	u8 throttled; /* by cpu.max */
	u16 loose;    /* let go, and counted in fair_domain.loose of this domain, + 1 */
	u8 patient;   /* woken into a crowd, by a task that is about to sleep */
	u8 hands;     /* how often of late it slept right after it woke a sibling ... */
	u8 passes;    /* ... or a thread of another process */
	bool woke_kin;
	bool heir; /* a child has its account since it last slept */
};

struct fair_cpu {
	u64 v;	       /* of the task that runs, as it came, by the domain's clock */
	u64 w;	       /* of it */
	u64 start;     /* when it came or was last charged; 0: none of ours runs */
	u64 came;      /* when it came */
	u64 ask;       /* ns from `start` on that it asked for: its deadline is v + ask / w */
	u64 until;     /* end of the turn that it is in */
	u64 short_end; /* when a timer ends its slice; 0: no timer does */
	u64 sampled;   /* when the call began that is timed here; 0: none is */
	u64 offset;    /* from the clock of the bound to the domain's */
	u64 buddy_queue;
	u32 buddy;   /* named by a directed yield: who runs next */
	u32 pid;     /* of the task that runs */
	u32 sibling; /* another thread of its core */
	u32 has;     /* its queue may not be empty: set after each insertion */
	u64 look_at; /* when a timer looks at the delayed next; 0: none does */
	u32 delayed; /* tasks that went to sleep there and are counted yet */
	u32 place;   /* where the next one is noted */
	u16 gang;    /* of the task that runs */
	u16 turn;    /* gang whose turn the CPU is in */
	u16 domain;
	u8 threads;	/* of its core */
	u8 plain;	/* enum plain, of the task that runs */
	u8 bound;	/* that task is */
	u8 lent;	/* the turn took it from a task that was owed it */
	u16 core_claim; /* whose task is on its way here from dispatch(): as core_claim_of() */
	u8 outdone; /* the other CPU of its core was first: to be woken when that runs or stops */
	u8 exempt;  /* it runs a kernel thread, which strict gangs do not mind */
	u16 buddy_gang;	 /* of the task that yielded to it */
	bool buddy_owed; /* it is owed the CPU, so that a turn may open with it */
};

struct fair_domain {
	u64 lent_at; /* when a turn last took CPUs from who is owed them */
	u64 load;    /* weights of its tasks, averaged */
	u64 load_at, moved_at, turned_at;
	u64 call;    /* the gang whose turn is about to open, and until when that holds */
	u64 bound_w; /* of those bound to CPUs, which the clocks of those count */
	u32 bound_nr, bound_running;
	u32 stolen; /* where the search for a gang begins from which another domain steals */
	u32 cpus;
	u32 gangs;
	u32 loose;     /* tasks that cpu.max let go, and that no clock counts before they run */
	u32 strangers; /* gangs may have come whose waiting members another domain counts */
	u32 queued;  /* times that a member came to a queue of a gang which the domain lists ... */
	u32 emptied; /* ... as of when all of these were empty: equal as long as they are */
	u16 list[LIST];
	u16 cpu[DOMAIN_CPUS];
};

struct fair_gang {
	u64 opened;  /* its turn, and ... */
	u64 early;   /* the same of the last turn in which no member was runnable any more */
	u64 until;   /* ... the end of that */
	u64 lent;    /* the end of the last one that takes CPUs from who is owed them */
	u64 had;     /* virtual time of all members together, without end */
	u64 domains; /* those that look at its queue */
	u64 room;    /* those all of whose CPUs every member may run on */
	u64 w;	     /* of its runnable members */
	u64 load;    /* the same, averaged */
	u32 on;	     /* runnable members */
	s32 adopted; /* threads of an unmarked guest that are its members */
	s32 awaited; /* of those for whom the turn was opened: not on CPU yet */
	u16 domain;
	u8 wide; /* it spans several domains */
	u8 mode;
};

struct fair_group {
	u64 weight;  /* FAIR_ONE: cpu.weight 100 */
	u64 counted; /* the effective one, as counted in the parent; 0: no task is runnable below */
	u64 word;    /* effective weights of active children << NR_BITS | how many they are */
	u64 share;   /* flat weight << SHARE_BITS, as of generation share_gen, at share_at */
	u64 share_at;
	u64 rate;  /* CPUs it is worth */
	u64 limit; /* cpu.max, as a rate; 0: none */
	u64 quota, period, used;
	u32 share_gen;
	u32 tasks; /* runnable ones below */
	u32 parent;
	u32 taken;
	u32 looked;  /* generation of `limited` */
	u32 limited; /* it or a group above it has a quota */
	u32 armed;   /* the timer runs */
};
#define NR_BITS	   20
#define NR_MASK	   ((1ULL << NR_BITS) - 1)
#define SHARE_BITS 12

/* All gang domains together. */
static struct {
	u64 w; /* of all runnable tasks, where there are several domains; see host_weight() */
	u32 nr, cpus, domains;
} host;

static struct fair_clock clocks[MAX_CLOCKS];
static struct fair_cpu cpus[GANG_MAX_CPUS];
static struct fair_domain domains_of[GANG_MAX_DOMAINS];
static struct fair_gang gangs[GANGS];
static struct fair_group groups[MAX_GROUPS];

const volatile u32 nr_cpus = 1;
static u64 turn_ns = TURN_MOST;
static u32 epoch = 1; /* of members */
static u32 strict_gangs;

struct fair_lock {
	struct bpf_spin_lock lock;
};
struct fair_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CLOCKS);
	__type(key, u32);
	__type(value, struct fair_lock);
} locks SEC(".maps"); /* of clocks */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fair_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64); /* as the kernel numbers control groups */
	__type(value, u32);
} group_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_CPUS);
	__type(key, u32);
	__type(value, struct fair_timer);
} slice_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct fair_timer);
} watch_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct fair_timer);
} quota_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_CPUS);
	__type(key, u32);
	__type(value, struct fair_timer);
} delay_timers SEC(".maps");

/*
 * The verifier needs the masks, and clang would drop those that it knows to be implied: hence
 * barriers.
 */
static struct fair_cpu *cpu_of(u32 cpu)
{
	barrier_var(cpu);
	return &cpus[cpu & (GANG_MAX_CPUS - 1)];
}

static struct fair_domain *domain_of(u32 domain)
{
	barrier_var(domain);
	return &domains_of[domain & (GANG_MAX_DOMAINS - 1)];
}

static struct fair_gang *gang_of(u32 gang)
{
	barrier_var(gang);
	return &gangs[gang & (GANGS - 1)];
}

static struct fair_group *group_of(u32 group)
{
	barrier_var(group);
	return &groups[group & (MAX_GROUPS - 1)];
}

static u64 cpu_queue(u32 cpu)
{
	return 0x10000 | cpu;
}

static u64 domain_queue(u32 domain)
{
	return 0x20000 | domain;
}

static u64 gang_queue(u32 gang)
{
	return 0x30000 | gang;
}

/* Returns the domain where @t waits, about to wait in @domain: a gang has a queue that only its own
 * domains look at. */
static u32 home_of(const struct fair_task *t, u32 domain)
{
	const struct fair_gang *g = gang_of(t->gang);
	bool here = g->wide && (g->domains >> domain & 1);

	return t->gang && !t->bound && !here ? g->domain : domain;
}

/* Returns the queue in which @t waits, on @cpu of @domain. */
static u64 waiting_queue(const struct fair_task *t, u32 cpu, u32 domain)
{
	return t->bound ? cpu_queue(cpu) : t->gang ? gang_queue(t->gang) : domain_queue(domain);
}

/* Returns the queue in which tasks of a group wait whose cpu.max is used up. */
static u64 throttled_queue(u32 group)
{
	return 0x40000 | group;
}

static u32 cpu_at(const struct fair_domain *d, u32 i)
{
	barrier_var(i);
	return d->cpu[i & (DOMAIN_CPUS - 1)];
}

static u32 gang_at(const struct fair_domain *d, u32 i)
{
	barrier_var(i);
	return d->list[i & (LIST - 1)];
}

/*
 * Functions that read a pointer in a task are global: the verifier, wherever one is read, looks for
 * a few names among those of all types of the kernel (btf_nested_type_is_trusted()), which takes it
 * longer than a thousand instructions. Programs that may sleep get there, too: hence the lock.
 */
GLOBAL int allows(struct task_struct *p __arg_trusted, u32 cpu)
{
	int allowed;

	bpf_rcu_read_lock();
	allowed = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return allowed;
}

/* Returns an idle CPU of those of @p, which is busy from now on; below 0: there is none. */
GLOBAL s32 take_idle_cpu(struct task_struct *p __arg_trusted)
{
	s32 cpu;

	bpf_rcu_read_lock();
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	bpf_rcu_read_unlock();
	return cpu;
}

/*
 * True if @p may not leave its CPU for a moment. The kernel disables migration of the current task
 * for each of our programs, of which @programs run, one in the other: that is no reason to stay.
 */
static bool is_fixed(const struct task_struct *p, u32 programs)
{
	const struct task_struct *current = bpf_get_current_task_btf();

	return p->migration_disabled > (current && current->pid == p->pid ? programs : 0);
}

static bool may_run(struct task_struct *p, u32 cpu)
{
	return (u32)scx_bpf_task_cpu(p) == cpu || (!is_fixed(p, 1) && allows(p, cpu));
}

/*
 * True if a real-time task runs on @cpu, or is about to. A task that is sent to a CPU which has
 * been released already is not queued again: it would wait there for as long as real time does not.
 */
static bool has_real_time(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->rt.rt_nr_running;
}

/* True if a task that was pushed to @cpu is on its way there, or if real time has the CPU. */
static bool is_taken(u32 cpu)
{
	return scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON | cpu) > 0 || has_real_time(cpu);
}

/* Returns the account of a task, with the gang that it belongs to now. */
static struct fair_task *task_of(struct task_struct *p)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	struct gang_member *member;
	u32 tid = p->pid;
	u16 had;

	if (!t || t->epoch == epoch)
		return t;
	had = t->gang;
	member = bpf_map_lookup_elem(&members, &tid);
	t->epoch = epoch;
	t->gang = 0;
	if (member && member->tgid == (u32)p->tgid && gang_of(member->gang)->mode)
		t->gang = member->gang; /* it is set up, and has a queue */
	if (!t->on || t->delayed || had == t->gang)
		return t;
	if (had) {
		__sync_fetch_and_add(&gang_of(had)->on, -1);
		__sync_fetch_and_add(&gang_of(had)->w, -t->w);
	}
	if (t->gang) {
		__sync_fetch_and_add(&gang_of(t->gang)->on, 1);
		__sync_fetch_and_add(&gang_of(t->gang)->w, t->w);
	}
	return t;
}

#include "stats.bpf.h"

#endif /* STATE_BPF_H */
