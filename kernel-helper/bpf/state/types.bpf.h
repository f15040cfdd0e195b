/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler's words: of tasks, CPUs, caches, gangs and control groups.
 *
 * A task's words change on the CPU whose run queue holds it, under that queue's lock, a clock's
 * under the lock of that clock; the comments below name the words that others may change meanwhile.
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
 * A function that the verifier looks at once, by itself: what callers know about its arguments is
 * forgotten, and the number of states does not multiply. Hence numbers instead of pointers.
 */
#define GLOBAL	    __noinline
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

#endif /* STATE_TYPES_BPF_H */
