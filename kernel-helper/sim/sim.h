/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host in a bottle: CPUs, guests and a scheduler, advanced from event to event.
 *
 * What a scheduler decides comes from kernel-helper/core, the same text that the kernel runs.
 * What surrounds it there (timers, interrupts, context switches) is here an event with a
 * price in nanoseconds, and what a guest computes is a formula: between two events the set of
 * vCPUs on CPU does not change, so how far a guest gets needs no stepping (load.c).
 *
 *   load.c    guests: what they get done while a given set of their vCPUs runs
 *   heap.c    the events, earliest first
 *   host.c    CPUs: switch, kick, idle; who is charged; the event loop
 *   gang.c    scheduler: slots, on core/gang_core.h, in the order of bpf/gang.bpf.c
 *   fair.c    scheduler: one queue a CPU, earliest eligible virtual deadline first (EEVDF),
 *             on core/gang_search.h; with pinned vCPUs; with siblings kept apart (balance)
 *   run.c     from a description to figures
 *
 * Times are nanoseconds since the start. The same description and seed give the same figures.
 */
#ifndef GANG_SIM_H
#define GANG_SIM_H

#include "gang_core.h"
#include "gang_search.h"

#define SIM_GUEST_VCPUS GANG_DOMAIN_CPUS
#define SIM_NONE	0xffffffffU
#define SIM_NEVER	(~0ULL)

enum sim_scheduler {
	SIM_GANG = 0,
	SIM_FAIR = 1,	 /* EEVDF, vCPUs go where they like */
	SIM_PINNED = 2,	 /* EEVDF, a vCPU stays where it was placed */
	SIM_BALANCE = 3, /* EEVDF, siblings never on one CPU */
};

enum sim_load {
	SIM_SPIN = 0,	 /* independent work; a round is work_ns on one vCPU */
	SIM_BARRIER = 1, /* work_ns each, then wait for all, spinning */
	SIM_IPI = 2,	 /* vCPU 0 works, interrupts all others, spins until each took extra_ns */
	SIM_SLEEP = 3,	 /* pairs: work, wake the other, halt; a round is there and back */
	SIM_DUTY = 4, /* each vCPU works work_ns, then halts for extra_ns; a round is one of both */
};

/* ---- the description; daemon's counterpart is gangsim/engine.py --------- */

struct sim_config {
	__u64 seed;
	__u64 duration_ns;
	__u64 slot_ns;	  /* of gang */
	__u64 slice_ns;	  /* of EEVDF */
	__u64 switch_ns;  /* a context switch: nobody runs */
	__u64 kick_ns;	  /* from sending an interrupt to the CPU choosing anew */
	__u64 jitter_ns;  /* a slice ends up to this much late */
	__u64 balance_ns; /* between two looks of a CPU for a busier one */
	__u64 trace_from; /* who runs where is written down from here ... */
	__u64 trace_to;	  /* ... to here */
	__u32 scheduler;  /* enum sim_scheduler */
	__u32 cpus;
	__u32 threads;	/* of a core */
	__u32 llc_cpus; /* of a last-level cache */
	__u32 guests;
	__u32 domains;
	__u32 traces; /* room for segments */
	__u32 pad;
};

struct sim_guest_config {
	__u64 work_ns;
	__u64 extra_ns;
	__u32 load; /* enum sim_load */
	__u32 vcpus;
	__u32 weight;
	__u32 first;  /* its vCPU 0 in the host's list of vCPUs; the others follow */
	__u32 domain; /* gang domain; SIM_NONE where it has none */
	__u32 mode;   /* enum gang_mode */
};

/* Where a CPU is: its gang domain and its column there. */
struct sim_place {
	__u32 domain;
	__u32 column;
};

struct sim_guest_result {
	__u64 rounds;
	__u64 run_ns;	 /* of all vCPUs */
	__u64 wait_ns;	 /* runnable and not running, of all vCPUs */
	__u64 some_ns;	 /* at least one vCPU ran */
	__u64 corun_ns;	 /* part of it with nobody waiting */
	__u64 starts;	 /* slots it was given, or times it came on CPU from nothing */
	__u64 costarted; /* of them: all runnable vCPUs ran at once */
	__u64 skew_ns;	 /* sum over co-started: first to last vCPU on CPU */
	__u64 skew_max_ns;
	__u64 vcpu_min_ns; /* run time of the vCPU that had least */
	__u64 vcpu_max_ns;
};

struct sim_result {
	__u64 run_ns; /* CPU time given to vCPUs; with the next two it adds up to CPUs times time */
	__u64 switch_ns;
	__u64 idle_ns;
	__u64 costop_ns; /* a CPU idled while a vCPU waited for it */
	__u64 decisions; /* a CPU chose, or a row was filled */
	__u64 switches;
	__u64 kicks;
	__u64 migrations;
	__u64 slots;
	__u64 early_ends;
	__u64 fillers;
	__u64 search_lines;
	__u64 events;
	__u32 traces;
	__u32 pad;
};

/* One vCPU on one CPU, from when to when. */
struct sim_segment {
	__u64 start;
	__u64 end;
	__u32 cpu;
	__u32 guest;
};

/* ---- the insides -------------------------------------------------------- */

enum sim_vcpu_state {
	SIM_HALTED,
	SIM_READY,
	SIM_ON_CPU,
};

struct sim_vcpu {
	__u64 run_ns;
	__u64 left; /* what load.c has it do next */
	__u64 ready_at;
	__u64 woke;	/* gang: when it last became runnable, and ... */
	__u64 together; /* ... what gang_state.together was then */
	__u64 vruntime;
	__u64 deadline; /* EEVDF: virtual */
	__s64 lag;	/* EEVDF: while it halts */
	__u32 guest;
	__u32 index; /* in its guest */
	__u32 home;  /* where it was placed */
	__u32 cpu;   /* where it runs or waits */
	__u32 state;
	__u32 started; /* was runnable before */
};

struct sim_guest {
	const struct sim_guest_config *config;
	struct sim_guest_result *result;
	__u64 ready;	/* by vCPU; on CPU included */
	__u64 running;	/* by vCPU: makes progress */
	__u64 now;	/* up to when it is accounted for */
	__u64 began;	/* when it came on CPU from nothing */
	__u32 phase;	/* SIM_IPI: 1 while acknowledgements are waited for */
	__u32 together; /* this start was counted */
};

enum sim_cpu_state {
	SIM_IDLE,
	SIM_SWITCHING,
	SIM_RUNNING,
};

struct sim_cpu {
	__u64 since;	  /* of the present state */
	__u64 slice_end;  /* when to choose again */
	__u64 charged;	  /* up to when current is charged */
	__u64 held_since; /* idle with somebody waiting; SIM_NEVER: not */
	__u64 clock;	  /* EEVDF: mean virtual time, last known */
	__u32 state;
	__u32 current;	 /* vCPU or SIM_NONE */
	__u32 waiting;	 /* vCPUs that could run here now and do not */
	__u32 held_back; /* gang: idles until a sibling of its core changes */
	struct sim_place place;
	__u32 *list; /* gang: vCPUs placed here; fair: those that wait here */
	__u32 listed;
	__u32 room;
};

struct sim_heap {
	__u64 *when; /* by event; SIM_NEVER: not in the heap */
	__u32 *at;   /* by event: place in order[] */
	__u32 *order;
	__u32 count;
};

struct sim;

/* What a scheduler answers. A vCPU is queued by ready(), taken out by pick() or halted(). */
struct sim_class {
	void (*start)(struct sim *sim);
	void (*ready)(struct sim *sim, __u32 vcpu, int woken); /* woken, or taken off its CPU */
	__u32 (*pick)(struct sim *sim, __u32 cpu, __u32 prev); /* prev: may go on; sets slice_end */
	void (*running)(struct sim *sim, __u32 vcpu);
	void (*stopping)(struct sim *sim, __u32 vcpu);
	void (*halted)(struct sim *sim, __u32 vcpu);
	void (*timer)(struct sim *sim, __u32 which);
	void (*finish)(struct sim *sim);
};

struct sim {
	const struct sim_config *config;
	const struct sim_class *class;
	struct sim_result *result;
	struct sim_segment *traces;
	struct sim_guest *guests;
	struct sim_vcpu *vcpus;
	struct sim_cpu *cpus;
	struct sim_heap heap;
	__u64 now;
	__u64 random;
	__u32 vcpu_count;
	__u32 timers; /* of the scheduler */
	/* gang.c */
	struct gang_state *gangs;
	struct gang_slot *slots;
	/* fair.c */
	struct gang_search *search;
	struct gang_cost cost;
};

int sim_heap_init(struct sim_heap *heap, __u32 events);
void sim_heap_free(struct sim_heap *heap);
void sim_heap_set(struct sim_heap *heap, __u32 event, __u64 when);
__u32 sim_heap_pop(struct sim_heap *heap, __u64 *when);

void load_init(struct sim *sim, struct sim_guest *guest);
void load_advance(struct sim *sim, struct sim_guest *guest);
__u64 load_until_halt(const struct sim_guest *guest, const struct sim_vcpu *vcpu);
__u32 load_halt(struct sim *sim, __u32 vcpu, __u64 *sleep_ns);
void load_finish(struct sim *sim, struct sim_guest *guest);

void host_wake(struct sim *sim, __u32 vcpu);
void host_kick(struct sim *sim, __u32 cpu);
void host_waiting(struct sim *sim, __u32 cpu, int change);
void host_timer(struct sim *sim, __u32 which, __u64 when);
void host_loop(struct sim *sim);
void host_list(struct sim_cpu *cpu, __u32 vcpu);
__u64 host_random(struct sim *sim, __u64 below);

extern const struct sim_class gang_class, fair_class;

int sim_run(const struct sim_config *config, const struct sim_guest_config *guests,
	    const struct sim_place *places, const __u32 *homes, struct sim_result *result,
	    struct sim_guest_result *guest_results, struct sim_segment *traces);

#endif /* GANG_SIM_H */
