/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler's records of tasks, CPUs, caches, gangs and control groups.
 *
 * A task's record changes on the CPU that has the task on its runqueue, under the lock of that
 * queue; a clock changes under the lock of that clock. The timers on_period() and on_watch() change
 * waiting tasks without the lock of a runqueue, and their functions say why that does no harm.
 */
#ifndef STATE_TYPES_BPF_H
#define STATE_TYPES_BPF_H

#include "kernel/compat.bpf.h"
#include "gang_abi.h"
#include "clock.h"
#include "request.h"
#include "turn.h"
#include "weight.h"

/*
 * Mark a function that the verifier checks once, by itself. The verifier forgets what callers know
 * about its arguments, and the number of states does not multiply; arguments are numbers rather
 * than pointers for that reason.
 */
#define GLOBAL	    __noinline
#define MSEC	    FAIR_MSEC
#define NOBODY	    0xffffffffU
#define MAX_GROUPS  32768
#define DEPTH	    24 /* levels of nested groups */
#define CACHE_CPUS  GANG_CACHE_CPUS
#define GANGS	    2048 /* gangs of the daemon, then gangs of guests without a mark */
#define LIST	    256	 /* gangs that a cache lists */
#define BOUND_CLOCK GANG_MAX_CPUS
#define MAX_CLOCKS  (2 * GANG_MAX_CPUS)

enum task_origin {
	TASK_OLD = 0, /* the task ran before */
	TASK_FOUND,   /* the task was there when the scheduler was loaded */
	TASK_FORKED,  /* the task begins with its parent's account */
};

struct fair_task {
	u64 v; /* virtual time, by the task's clock */
	u64 w; /* flat weight, as counted in the clock */
	/* ns between two sleeps that the task runs, on average; FAIR_NEVER: it never slept */
	u64 burst;
	u64 ran;   /* ns that the task ran since it last slept */
	u64 slept; /* when the task last went to sleep */
	u64 owed;  /* ns of lag that the task had then */
	u64 util;  /* CPU time from sleep to sleep over the time between them, as a rate */
	/* when the task last woke a thread of its process, or, about to sleep, another task */
	u64 woke;
	u64 queue;	/* queue in which the task waits */
	u64 since;	/* when the task was queued */
	u64 room;	/* caches on all CPUs of which the task may run, a bit each */
	u64 task_group; /* the kernel's task_group when `group` was looked up */
	u32 epoch;	/* the global `epoch` when `gang` was looked up */
	u32 group;
	u32 own;     /* weight among the tasks of its group */
	u32 counted; /* effective weight, as counted in the group */
	u32 allowed; /* allowed CPUs when `room` was looked up; 0: look it up */
	u16 clock;   /* a cache, or BOUND_CLOCK + CPU */
	u16 cache;
	u16 gang;
	u16 adopts; /* gang that the task joins once it is queued again */
	/* place in `delayed` + 1 of a task that sleeps and is still counted; 0: none */
	u32 delayed;
	u8 on_rq; /* the task is counted in its clock and its groups */
	u8 bound; /* the task may not use some CPU of its cache, or of its gang's */
	u8 origin;
	u8 throttled; /* cpu.max throttles the task */
	/* cache + 1 that counts the task in its `loose`, since cpu.max let it go; 0: none */
	u16 loose;
	u8 patient; /* a task that is about to sleep woke this one into a crowd */
	/* how often of late the task slept right after it woke a thread of its process */
	u8 hands;
	/* how often of late it slept right after it woke a thread of another process */
	u8 passes;
	bool woke_kin;
	bool heir; /* a child took over the account since the task last slept */
};

struct fair_cpu {
	u64 v;	   /* virtual time of the running task at `start`, by the cache's clock */
	u64 w;	   /* weight of the running task */
	u64 start; /* when the running task came or was last charged; 0: none of ours runs */
	u64 came;  /* when the running task came */
	/* ns from `start` on that the running task asks for: its deadline is v + ask / w */
	u64 ask;
	u64 until;     /* end of the turn that the CPU is in */
	u64 short_end; /* when a timer interrupts the CPU; 0: no timer does */
	u64 sampled;   /* when the call began that the CPU times; 0: none */
	u64 offset;    /* distance from the clock of the tasks bound here to the cache's clock */
	u64 buddy_queue;
	u32 buddy;   /* pid of the task that a directed yield named, and that runs next */
	u32 pid;     /* pid of the running task */
	u32 sibling; /* another CPU of the core */
	u32 has;     /* the CPU's queue may hold a task: set after each insertion */
	u64 look_at; /* when a timer looks at the delayed tasks next; 0: no timer does */
	u32 delayed; /* tasks that went to sleep here and are still counted */
	u32 place;   /* place for the next one of these */
	u16 gang;    /* gang of the running task */
	u16 turn;    /* gang that has its turn on the CPU */
	u16 cache;
	u8 threads; /* CPUs of the core */
	u8 manner;  /* enum manner, of the running task */
	u8 bound;   /* the running task is bound */
	u8 lent;    /* the turn took the CPU from a task that was owed it */
	/* party of the task on its way here from dispatch(), as core_claim_of() */
	u16 core_claim;
	/* the other CPU of the core was first; it wakes this one when it runs or stops */
	u8 outdone;
	u8 paid;	 /* the member that opens a turn here owes no more than a lent turn */
	u8 exempt;	 /* the CPU runs a kernel thread, which strict gangs do not mind */
	u16 buddy_gang;	 /* gang of the task that yielded to `buddy` */
	bool buddy_owed; /* `buddy` is owed the CPU, so that a turn may open with it */
};

struct fair_cache {
	u64 lent_at; /* when a turn last took CPUs from tasks that are owed them */
	u64 load;    /* weight of the runnable tasks, averaged */
	u64 load_at, moved_at, turned_at;
	/* gang that has a turn about to open, and until when the announcement holds */
	u64 announced;
	u64 bound_w; /* weight of the tasks bound to CPUs, which the clocks of these CPUs count */
	u32 bound_nr, bound_running;
	/* index in `list` from which another cache searches for a gang to steal from */
	u32 stolen;
	u32 cpus;
	u32 gangs;
	u32 loose;     /* tasks that cpu.max let go, and that no clock counts before they run */
	u32 strangers; /* gangs may have come with waiting members that another cache counts */
	u32 queued;    /* times that a member came to a queue of a gang that the cache lists */
	u32 emptied;   /* `queued` when all of these queues were empty: equal as long as they are */
	u16 list[LIST];
	u16 cpu[CACHE_CPUS];
};

struct fair_gang {
	u64 opened; /* start of the gang's turn */
	u64 early;  /* `opened` of the last turn in which no member was runnable any more */
	u64 until;  /* end of the gang's turn */
	u64 lent;   /* `until` of the last turn that takes CPUs from tasks that are owed them */
	u64 had;    /* virtual time that all members had together; it only grows */
	u64 caches; /* caches that look at the gang's queue, a bit each */
	u64 room;   /* caches on all CPUs of which every member may run, a bit each */
	u64 w;	    /* weight of the runnable members */
	u64 load;   /* `w`, averaged */
	u32 nr_runnable; /* members */
	s32 adopted;	 /* threads of an unmarked guest that are members */
	s32 awaited;	 /* members that the turn was opened for, and that are not on CPU yet */
	u16 cache;
	u8 wide; /* the gang spans several caches */
	u8 mode;
};

struct fair_group {
	u64 weight; /* weight among its siblings; FAIR_ONE: cpu.weight 100 */
	/* effective weight, as counted in the parent; 0: no task is runnable below */
	u64 counted;
	u64 word; /* effective weights of active children << NR_BITS | how many they are */
	/* flat weight << SHARE_BITS, computed in generation share_gen, at share_at */
	u64 share;
	u64 share_at;
	u64 rate;  /* CPUs that the group is worth */
	u64 limit; /* cpu.max, as a rate; 0: none */
	u64 quota, period, used;
	u32 share_gen;
	u32 tasks; /* runnable tasks below */
	u32 parent;
	u32 taken;
	u32 looked;  /* quota_gen when `limited` was looked up */
	u32 limited; /* the group or one above it has a quota */
	u32 armed;   /* the timer of the period runs */
};

#define NR_BITS	   20
#define NR_MASK	   ((1ULL << NR_BITS) - 1)
#define SHARE_BITS 12

#endif /* STATE_TYPES_BPF_H */
