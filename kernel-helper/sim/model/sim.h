/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host in a bottle: CPUs, guests, other tasks and a scheduler, advanced from event to event.
 *
 * The gang scheduler is bpf/gang.bpf.c itself, compiled for user space behind shim/ and loaded
 * anew for every run; what it finds around it is a model of the kernel. Between two events the set
 * of tasks on CPU does not change, so how far a guest gets is a formula and needs no stepping.
 *
 * The rooms and what each may use are in README.md; here is the state that they share.
 *
 * Times are nanoseconds since the start. The same description and seed give the same figures.
 */
#ifndef GANG_SIM_H
#define GANG_SIM_H

#include <stddef.h>

#include "model/describe.h"
#include "model/kernel.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef unsigned __int128 sim_mask; /* by vCPU */

static inline u32 mask_count(sim_mask mask)
{
	return __builtin_popcountll(mask) + __builtin_popcountll(mask >> 64);
}

#define SIM_TIMERS 65536	    /* two a CPU, and one for each of 32,767 groups */
#define SIM_DAEMON (SIM_TIMERS + 1) /* the timer of what the daemon does later */
#define SIM_BATCH  32		    /* SCX_DSP_DFL_MAX_BATCH */
#define SIM_WORDS  (SIM_CPUS / 64)
#define SIM_BOOT   1000000000000ULL /* the clock that programs read does not begin at 0 */

struct sim_dsq;

enum sim_task_state {
	SIM_HALTED,
	SIM_READY,
	SIM_ON_CPU,
};

struct sim_task {
	struct task_struct p; /* first: what the scheduler is given */
	struct css_set css_set;
	const struct sim_task_config *config;
	struct sim_task_result *result;
	u32 *latency; /* histogram */
	u32 id;
	u32 cpu;   /* where it runs or waits */
	u32 state; /* enum sim_task_state */
	u32 started;
	u32 woken;    /* its next run ends a wait that a wakeup began */
	u32 ple_turn; /* after whom the next directed yield looks */
	u64 left;     /* work until it sleeps, of its own; SIM_NEVER: it does not */
	u64 owed;     /* what it has to do for its guest's next round (machine/load.c) */
	u64 since;    /* up to when left is right, while it runs */
	u64 ready_at;
	/* kernel/ */
	struct sim_dsq *dsq;
	struct sim_task *next, *prev;
	u64 dsq_seq;
	u64 ddsp_dsq;
	u64 ddsp_flags;
	u64 runnable_at;
	u64 wake_flags;
	u32 bpf_queued; /* enqueue() neither inserted it nor was it dequeued since */
	/* fair/ */
	struct sim_entity *entity;
};

struct sim_guest {
	const struct sim_guest_config *config;
	struct sim_guest_result *result;
	sim_mask members; /* vCPUs of role SIM_MEMBER */
	sim_mask ready;	  /* by vCPU; on CPU included */
	sim_mask on;	  /* by vCPU: has a CPU ... */
	sim_mask running; /* ... and makes progress there */
	u64 now;	  /* up to when it is accounted for */
	u64 began;	  /* when it came on CPU from nothing */
	u32 busy;	  /* how many members; they are the first vCPUs */
	u32 phase;	  /* SIM_IPI: 1 while acknowledgements are waited for */
	u32 together;	  /* this start was counted */
};

enum sim_cpu_state {
	SIM_IDLE,
	SIM_SWITCHING, /* or deciding, or in an exit: nobody gets on */
	SIM_RUNNING,
};

struct sim_dsq {
	u64 id;
	struct sim_task *first, *last;
	u32 nr;
	u32 priq;
	u64 seq;
	struct sim_dsq *chain; /* of its hash bucket */
};

struct sim_cpu {
	u64 since;	/* of the present state */
	u64 held_since; /* idle with somebody waiting; SIM_NEVER: not */
	u64 exec_start; /* up to when current was charged */
	u64 busy;	/* until then it is at what it decided last */
	u64 debt;	/* what was decided here and has not been paid for */
	u64 tick_phase;
	u32 state; /* enum sim_cpu_state */
	u32 need_resched;
	u32 called; /* another CPU asked it to choose since it last began to */
	struct sim_task *current;
	u32 waiting; /* tasks that wait here */
	/* kernel/ */
	struct sim_dsq local;
	u64 kick[SIM_WORDS], preempt[SIM_WORDS], kick_idle[SIM_WORDS];
	u32 nr_running;
	u32 kicking; /* some bit of the above is set */
};

struct sim_heap {
	u64 *when; /* by event; SIM_NEVER: not in the heap */
	u32 *at;   /* by event: place in order[] */
	u32 *order;
	u32 count;
};

struct sim;

/* The calls of core.c to a scheduling class; names and order are the kernel's. */
struct sim_class {
	void (*start)(struct sim *sim);
	void (*init_task)(struct sim *sim, struct sim_task *task, int fork);
	void (*exit_task)(struct sim *sim, struct sim_task *task);
	u32 (*select_cpu)(struct sim *sim, struct sim_task *task, u64 wake_flags);
	void (*enqueue)(struct sim *sim, struct sim_task *task, u64 flags);
	void (*dequeue)(struct sim *sim, struct sim_task *task, u64 flags);
	struct sim_task *(*pick)(struct sim *sim, u32 cpu, struct sim_task *prev);
	void (*put_prev)(struct sim *sim, u32 cpu, struct sim_task *prev, struct sim_task *next);
	void (*set_next)(struct sim *sim, u32 cpu, struct sim_task *next);
	void (*idle)(struct sim *sim, u32 cpu, int idle, int notify);
	int (*tick)(struct sim *sim, u32 cpu);	    /* to be rescheduled? */
	u64 (*next_tick)(struct sim *sim, u32 cpu); /* that matters; SIM_NEVER: none does */
	int (*yield_to)(struct sim *sim, struct sim_task *from, struct sim_task *to);
	void (*timer)(struct sim *sim, u32 which);
	void (*finish)(struct sim *sim);
};

/* The state of the event that is being handled; each event of a race has its own. */
struct sim_event {
	u64 spent; /* price of what was decided in it so far */
	u64 ns;	   /* and of the present call of the scheduler */
	u32 depth; /* of calls within calls */
	u32 cpu;   /* that it happens on */
	u32 in_schedule;
	u32 kf_mask; /* of the op that is being called: which calls it may make */
	/* kernel/ */
	u32 buffered, moved;
	struct sim_task *direct; /* the task that is being selected for or enqueued */
	struct sim_task *buffer[SIM_BATCH];
	u64 buffer_dsq[SIM_BATCH], buffer_flags[SIM_BATCH];
};

struct sim {
	const struct sim_description *description;
	const struct sim_config *config;
	const struct sim_answer *answer;
	const struct sim_class *class;
	struct sim_result *result;
	struct sim_guest *guests;
	struct sim_task *tasks;
	struct sim_cpu *cpus;
	struct task_group *groups;
	struct cgroup *cgroups;
	struct sim_heap heap;
	u64 now;
	u64 moment, moment_began; /* of the last event, and the number of events before it */
	u64 random;
	struct sim_event event;
	struct sim_race *race;	 /* NULL: an event is over when the next begins */
	struct sim_lines *lines; /* NULL: they cost nothing */
	u32 next_pid;
	/* kernel/ */
	void *object; /* dlopen()'s */
	u64 *steps;   /* in it: rounds of loops in the present call */
	const struct sim_ops *ops;
	struct sim_dsq *dsqs[16384];
	struct sim_dsq global;
	u64 idle[SIM_WORDS], idle_core[SIM_WORDS];
	void *maps;
	struct shim_timer *timers[SIM_TIMERS];
	u32 timer_count;
	/* fair/ */
	struct sim_fair *fair;
	u32 bound; /* tasks that have one CPU only */
};

/* sim.c */
extern __thread struct sim *sim_current; /* for what the scheduler calls */
u64 sim_random(u64 *state, u64 below);
struct sim_guest *sim_guest_of(struct sim *sim, const struct sim_task *task);
u32 sim_cache(const struct sim *sim, u32 cpu, u32 *past);
int sim_allowed(const struct sim_task *task, u32 cpu);
int sim_is_unborn(const struct sim_task *task);
void sim_spend(struct sim *sim, u64 ns);
void sim_decide(struct sim *sim, u64 ns);

#endif /* GANG_SIM_H */
