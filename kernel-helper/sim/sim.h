/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host in a bottle: CPUs, guests, other tasks and a scheduler, advanced from event to event.
 *
 * The gang scheduler is bpf/gang.bpf.c itself, compiled for user space behind shim/ and loaded
 * anew for every run; what it finds around it is a model of the kernel. Between two events the set
 * of tasks on CPU does not change, so how far a guest gets is a formula and needs no stepping.
 *
 *   describe.h  what a simulation is told and what it answers
 *   load.c      guests: what they get done while a given set of their vCPUs runs
 *   heap.c      the events, earliest first
 *   event.c     which events there are, and the loop that goes from one to the next
 *   host.c      CPUs: switching, running, idle; who is charged
 *   core.c      kernel/sched/core.c: schedule(), wakeups, forks, ticks, directed yields
 *   ext.c enable.c  kernel/sched/ext.c: what is done around the ops
 *   dsq.c       its queues
 *   idle.c      kernel/sched/ext_idle.c: idle CPUs, and which of them a task gets
 *   kfunc.c kfunc_dsq.c  what the scheduler may call
 *   map.c timer.c  BPF's maps, storage and timers
 *   object.c    the scheduler's code: loaded afresh, its calls priced
 *   race.c      CPUs that meet inside it
 *   orders.c    what the daemon would tell it
 *   fair.c      the other scheduler; cfs.c queue.c bandwidth.c: EEVDF, its groups, cpu.max
 *   latency.c   how long tasks wait once woken
 *   run.c       from a description to figures
 *
 * Times are nanoseconds since the start. The same description and seed give the same figures.
 */
#ifndef GANG_SIM_H
#define GANG_SIM_H

#include <stddef.h>

#include "describe.h"
#include "shim/kernel.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef unsigned __int128 sim_mask; /* by vCPU */

static inline u32 mask_count(sim_mask mask)
{
	return __builtin_popcountll(mask) + __builtin_popcountll(mask >> 64);
}

#define SIM_TIMERS 4096
#define SIM_DAEMON (SIM_TIMERS + 1) /* the timer of what the daemon does later */
#define SIM_WORDS  (SIM_CPUS / 64)
#define SIM_BOOT   1000000000000ULL /* the clock that programs read does not begin at 0 */

/* include/linux/sched/ext.h and kernel/sched/ext_internal.h, 6.18 */
#define SCX_SLICE_DFL		 20000000ULL
#define SCX_SLICE_INF		 (~0ULL)
#define SCX_TASK_QUEUED		 1
#define SCX_OPS_ENQ_LAST	 (1 << 1)
#define SCX_OPS_ALLOW_QUEUED	 (1 << 5)
#define SCX_DSQ_BUILTIN		 (1ULL << 63)
#define SCX_DSQ_LOCAL_ON_BIT	 (1ULL << 62)
#define SCX_DSQ_INVALID		 SCX_DSQ_BUILTIN
#define SCX_DSQ_GLOBAL		 (SCX_DSQ_BUILTIN | 1)
#define SCX_DSQ_LOCAL		 (SCX_DSQ_BUILTIN | 2)
#define SCX_DSQ_LOCAL_ON	 (SCX_DSQ_BUILTIN | SCX_DSQ_LOCAL_ON_BIT)
#define SCX_ENQ_WAKEUP		 1ULL
#define SCX_ENQ_HEAD		 16ULL
#define SCX_ENQ_CPU_SELECTED	 (1ULL << 10)
#define SCX_ENQ_PREEMPT		 (1ULL << 32)
#define SCX_ENQ_REENQ		 (1ULL << 40)
#define SCX_ENQ_LAST		 (1ULL << 41)
#define SCX_ENQ_DSQ_PRIQ	 (1ULL << 57)
#define SCX_DEQ_SLEEP		 1ULL
#define SCX_WAKE_FORK		 4ULL
#define SCX_WAKE_TTWU		 8ULL
#define SCX_KICK_IDLE		 1
#define SCX_KICK_PREEMPT	 2
#define SCX_DSP_DFL_MAX_BATCH	 32
#define SCX_DSP_MAX_LOOPS	 32
#define SCX_WATCHDOG_MAX_TIMEOUT 30000

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
	u64 owed;     /* what it has to do for its guest's next round (load.c) */
	u64 since;    /* up to when left is right, while it runs */
	u64 ready_at;
	/* ext.c */
	struct sim_dsq *dsq;
	struct sim_task *next, *prev;
	u64 dsq_seq;
	u64 ddsp_dsq;
	u64 ddsp_flags;
	u64 runnable_at;
	u64 wake_flags;
	u32 bpf_queued; /* enqueue() neither inserted it nor was it dequeued since */
	/* fair.c */
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
	struct sim_task *current;
	u32 waiting; /* tasks that wait here */
	/* ext.c */
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

/* What core.c asks of a scheduling class; names and order of calls as in the kernel. */
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

/* Of the event that is being handled; of several in a race each has its own. */
struct sim_event {
	u64 spent; /* price of what was decided in it so far */
	u64 ns;	   /* and of the present call of the scheduler */
	u32 depth; /* of calls within calls */
	u32 cpu;   /* that it happens on */
	u32 in_schedule;
	/* ext.c */
	u32 buffered, moved;
	struct sim_task *direct; /* the task that is being selected for or enqueued */
	struct sim_task *buffer[SCX_DSP_DFL_MAX_BATCH];
	u64 buffer_dsq[SCX_DSP_DFL_MAX_BATCH], buffer_flags[SCX_DSP_DFL_MAX_BATCH];
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
	struct sim_race *race; /* NULL: an event is over when the next begins */
	u32 next_pid;
	/* ext.c and its kin */
	void *object; /* dlopen()'s */
	u64 *steps;   /* in it: rounds of loops in the present call */
	const struct sim_ops *ops;
	struct sim_dsq *dsqs[16384];
	struct sim_dsq global;
	u64 idle[SIM_WORDS], idle_core[SIM_WORDS];
	void *maps;
	struct shim_timer *timers[SIM_TIMERS];
	u32 timer_count;
	/* fair.c */
	struct sim_fair *fair;
	u32 bound; /* tasks that have one CPU only */
};

int sim_heap_init(struct sim_heap *heap, u32 events);
void sim_heap_free(struct sim_heap *heap);
void sim_heap_set(struct sim_heap *heap, u32 event, u64 when);
u32 sim_heap_pop(struct sim_heap *heap, u64 *when);

void load_init(struct sim *sim, struct sim_guest *guest);
void load_advance(struct sim *sim, struct sim_guest *guest);
u64 load_until_spin(struct sim *sim, const struct sim_task *task);
void load_finish(struct sim *sim, struct sim_guest *guest);

/* host.c */
u64 random_below(u64 *state, u64 below);
void host_done(struct sim *sim, u32 cpu);
void host_kicked(struct sim *sim, u32 cpu);
void host_finish(struct sim *sim);
struct sim_guest *host_guest(struct sim *sim, const struct sim_task *task);
u32 host_cache(const struct sim *sim, u32 cpu, u32 *past);
void host_waiting(struct sim *sim, u32 cpu, int change);
void host_join(struct sim *sim, u32 cpu);
void host_leave(struct sim *sim, u32 cpu);
void host_switch(struct sim *sim, u32 cpu, struct sim_task *next);
void host_pause(struct sim *sim, u32 cpu);
void host_together(struct sim *sim, struct sim_guest *guest);

/* event.c */
u32 host_events(const struct sim *sim);
void host_done_at(struct sim *sim, u32 cpu, u64 when);
void host_kick(struct sim *sim, u32 cpu, u64 after);
void host_timer(struct sim *sim, u32 which, u64 when);
int host_timer_armed(const struct sim *sim, u32 which);
void host_flush_at(struct sim *sim, u32 cpu, u64 when);
void host_tick_at(struct sim *sim, u32 cpu, u64 when);
void host_task_at(struct sim *sim, const struct sim_task *task, u64 when);
void host_wake_at(struct sim *sim, const struct sim_task *task, u64 when);
void host_ple_at(struct sim *sim, const struct sim_task *task, u64 when);
void host_happen(struct sim *sim, u32 event);
void host_loop(struct sim *sim);

/* latency.c */
void latency_note(struct sim *sim, struct sim_task *task);
u64 latency_percentile(const struct sim_task *task, u64 share);

/* core.c */
void core_schedule(struct sim *sim, u32 cpu, int blocks);
void core_resched(struct sim *sim, u32 cpu);
void core_wake(struct sim *sim, struct sim_task *task);
void core_activate(struct sim *sim, struct sim_task *task, u64 flags);
void core_done(struct sim *sim, struct sim_task *task);
void core_tick(struct sim *sim, u32 cpu);
void core_spin(struct sim *sim, struct sim_task *task);
int core_is_unborn(const struct sim_task *task);
int core_allowed(const struct sim_task *task, u32 cpu);
void core_arm_ple(struct sim *sim, struct sim_task *task);

/* ext.c, dsq.c, idle.c */
extern const struct sim_class ext_class, fair_class;
void ext_error(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ext_enqueue_local(struct sim *sim, u32 cpu, struct sim_task *task, u64 flags);
void ext_insert(struct sim *sim, struct sim_task *task, u64 id, u64 flags, u32 cpu);
void ext_rearm(struct sim *sim, struct sim_task *task);
void ext_reenqueue(struct sim *sim, struct sim_task *task);
void ext_flush(struct sim *sim, u32 cpu);
int dsq_create(struct sim *sim, u64 id);
struct sim_dsq *dsq_find(struct sim *sim, u64 id);
struct sim_dsq *dsq_target(struct sim *sim, u64 id, u32 cpu);
void dsq_add(struct sim *sim, struct sim_dsq *dsq, struct sim_task *task, u64 flags);
void dsq_remove(struct sim_task *task);
int dsq_consume(struct sim *sim, struct sim_dsq *dsq, u32 cpu);
void dsq_free(struct sim *sim);
int idle_claim(struct sim *sim, u32 cpu);
int idle_pick(struct sim *sim, const unsigned long *allowed, int core);
int idle_near(struct sim *sim, struct sim_task *task, u32 prev);
int idle_select(struct sim *sim, struct sim_task *task, u32 prev);
void idle_note(struct sim *sim, u32 cpu, int idle);

/* object.c, map.c, timer.c */
extern __thread struct sim *sim_current;
int object_load(struct sim *sim, const char *path);
int object_order(struct sim *sim);
int object_reorder(struct sim *sim);
void object_collect(struct sim *sim);
void object_unload(struct sim *sim);
void object_begin(struct sim *sim);
void object_end(struct sim *sim, u64 base);
int object_inside(const struct sim *sim, const volatile void *at);
void price(u64 ns);
void map_free(struct sim *sim);
const void *map_key(void *map, const void *value, u32 *index);
void storage_free(void **storage);
u32 timer_cpu(const struct sim *sim, u32 which);
void timer_fire(struct sim *sim, u32 which);
void timer_free(struct sim *sim);

int sim_run(const struct sim_description *description, const struct sim_answer *answer,
	    const char *object);

#endif /* GANG_SIM_H */
