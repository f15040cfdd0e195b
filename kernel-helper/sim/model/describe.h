/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of a simulation and its answer; gangsim/engine.py is the mirror, which builds its
 * structs from this text. Only 64-bit members, then 32-bit ones; times are nanoseconds.
 */
#ifndef GANG_DESCRIBE_H
#define GANG_DESCRIBE_H

#define SIM_CPUS	1024
#define SIM_NONE	0xffffffffU
#define SIM_NEVER	(~0ULL)
#define SIM_LAT_BUCKETS 256

enum sim_scheduler {
	SIM_GANG = 0,
	SIM_FAIR = 1,	 /* EEVDF, vCPUs go where they like */
	SIM_PINNED = 2,	 /* EEVDF, a vCPU stays where it was placed */
	SIM_BALANCE = 3, /* EEVDF, siblings never on one CPU */
};

/* of a guest, all vCPUs that have the role SIM_MEMBER together */
enum sim_load {
	SIM_SPIN = 0,	 /* independent work; a round is work_ns on one vCPU */
	SIM_BARRIER = 1, /* work_ns each, then wait for all, spinning */
	SIM_IPI = 2,	 /* vCPU 0 works, interrupts all others, spins until each took extra_ns */
	SIM_SLEEP = 3,	 /* pairs: work, wake the other, halt; a round is there and back */
	SIM_DUTY = 4, /* each vCPU works work_ns, then halts for extra_ns; a round is one of both */
};

/* of a task by itself */
enum sim_role {
	SIM_MEMBER = 0, /* a vCPU that does what its guest does */
	SIM_ASLEEP = 1, /* never runs */
	SIM_HOG = 2,	/* never sleeps; a round is work_ns */
	SIM_CYCLE = 3,	/* works work_ns, then sleeps for sleep_ns */
	SIM_CHAIN = 4,	/* works work_ns, forks the next of its kind and exits */
};

struct sim_config {
	unsigned long long seed;
	unsigned long long duration_ns;
	unsigned long long turn_ns;   /* of gang: how long a turn lasts, at most */
	unsigned long long slice_ns;  /* of EEVDF, on a host of one CPU */
	unsigned long long switch_ns; /* a context switch: nobody runs */
	unsigned long long kick_ns;   /* from sending an interrupt to the CPU choosing anew */
	unsigned long long send_ns;   /* of each such interrupt, on the CPU that sends it */
	unsigned long long timer_ns;  /* how late a timer of the scheduler fires */
	unsigned long long tick_ns;   /* scheduler tick */
	unsigned long long ple_ns;    /* a spinning vCPU exits after, and no more often than that */
	unsigned long long exit_ns;   /* what such an exit and looking for whom to yield to costs */
	unsigned long long balance_ns; /* EEVDF: between two looks of a CPU for a busier one */
	unsigned long long select_ns;  /* select_cpu() of the class, and what follows it, ... */
	unsigned long long enqueue_ns;
	unsigned long long dispatch_ns;
	unsigned long long running_ns;
	unsigned long long stopping_ns;
	unsigned long long tick_op_ns;
	unsigned long long timer_op_ns; /* ... a timer's callback, ... */
	unsigned long long op_ns;	/* ... of any other; and to that: */
	unsigned long long call_ns;	/* what the scheduler calls: a map, a queue's length, ... */
	unsigned long long queue_ns;   /* ... that takes a lock: a queue is changed, a CPU kicked */
	unsigned long long step_ns;    /* a round of a loop */
	unsigned long long line_ns;    /* a cache line comes from another CPU; 0: not counted */
	unsigned long long trace_from; /* who runs where is written down from here ... */
	unsigned long long trace_to;   /* ... to here */
	unsigned int scheduler;	       /* enum sim_scheduler */
	unsigned int cpus;
	unsigned int threads;  /* of a core */
	unsigned int llc_cpus; /* of a last-level cache */
	unsigned int guests;
	unsigned int tasks;
	unsigned int groups;
	unsigned int traces;   /* room for segments */
	unsigned int race;     /* a CPU is left at one in so many shared accesses; 0: never */
	unsigned int together; /* ticks come to all CPUs at once */
	unsigned int forgets;  /* sched_ext loses flags of a task that is moved to another CPU */
	unsigned int pad;
	unsigned long long starts[SIM_CPUS / 64]; /* CPUs with which a cache begins */
};

/* A cgroup. Number 0 is the root; a parent comes before its children. */
struct sim_group_config {
	unsigned long long quota_ns; /* cpu.max; SIM_NEVER: none */
	unsigned long long period_ns;
	unsigned int parent;
	unsigned int weight; /* cpu.weight */
	unsigned int idle;   /* cpu.idle */
	unsigned int pad;
};

struct sim_guest_config {
	unsigned long long work_ns;
	unsigned long long extra_ns;
	unsigned long long unmark_ns; /* when its mark goes; SIM_NEVER: never */
	unsigned int load;	      /* enum sim_load */
	unsigned int vcpus;
	unsigned int first;  /* its vCPU 0 among the tasks; the others follow */
	unsigned int gang;   /* its number, from 1; 0: it is not marked */
	unsigned int domain; /* cache in which its turns begin */
	unsigned int mode;   /* enum gang_mode */
	unsigned int ple;    /* its vCPUs exit when they spin */
	unsigned int pad;
};

struct sim_task_config {
	unsigned long long work_ns;
	unsigned long long sleep_ns;
	unsigned long long start_ns;
	unsigned long long allowed[SIM_CPUS / 64];
	unsigned int role;  /* enum sim_role */
	unsigned int guest; /* SIM_NONE: an ordinary task */
	unsigned int index; /* of its vCPU */
	unsigned int home;  /* CPU where it is placed, or begins */
	unsigned int group;
	int nice;
	unsigned int pid;
	unsigned int tgid;
	unsigned int idle;    /* SCHED_IDLE */
	unsigned int kthread; /* a thread of the kernel */
};

struct sim_guest_result {
	unsigned long long rounds;
	unsigned long long run_ns;   /* of all vCPUs */
	unsigned long long wait_ns;  /* runnable and not running, of all vCPUs */
	unsigned long long some_ns;  /* at least one vCPU ran */
	unsigned long long corun_ns; /* part of it with nobody waiting */
	unsigned long long starts;   /* turns it was given, or times it came on CPU from nothing */
	unsigned long long whole;    /* of them: all runnable vCPUs ran at once */
	unsigned long long skew_ns;  /* sum over those: first to last vCPU on CPU */
	unsigned long long skew_max_ns;
	unsigned long long ended_early; /* this and what follows: gang_abi.h, gang_stats */
	unsigned long long seats_wanted;
	unsigned long long seats_had;
	unsigned long long member_ns; /* run_ns there */
	unsigned long long apart_ns;
	unsigned long long borrowed_ns;
	unsigned long long throttled_ns;
	unsigned long long vcpu_min_ns; /* run time of the member that had least */
	unsigned long long vcpu_max_ns;
	unsigned long long yields;     /* tries to yield to a sibling that waits (PLE) */
	unsigned long long yields_hit; /* of them: granted */
};

struct sim_task_result {
	unsigned long long rounds;
	unsigned long long run_ns;
	unsigned long long wait_ns;
	unsigned long long wakeups; /* from asleep, or newly forked, to running */
	unsigned long long latency_p50_ns;
	unsigned long long latency_p99_ns;
	unsigned long long latency_max_ns;
	unsigned long long longest_wait_ns; /* runnable and off CPU, woken or preempted */
	unsigned long long switches;
	unsigned long long migrations;
};

struct sim_result {
	unsigned long long run_ns;    /* CPU time of tasks; with the next two: CPUs times time */
	unsigned long long switch_ns; /* switches, and what the scheduler and exits took */
	unsigned long long idle_ns;
	unsigned long long op_ns;     /* the price of decisions, of idle CPUs, too */
	unsigned long long line_ns;   /* part of op_ns: cache lines that came from other CPUs */
	unsigned long long costop_ns; /* a CPU idled while a task waited that may run there */
	unsigned long long longest_costop_ns;
	unsigned long long decisions; /* a CPU chose */
	unsigned long long switches;
	unsigned long long kicks; /* interrupts to CPUs, so that they choose: wakeups, too */
	unsigned long long migrations;
	unsigned long long ops; /* calls of the scheduler */
	unsigned long long events;
	unsigned int traces;
	unsigned int pad;
};

/* One task on one CPU, from when to when. */
struct sim_segment {
	unsigned long long start;
	unsigned long long end;
	unsigned int cpu;
	unsigned int task;
};

/* All of it. */
struct sim_description {
	const struct sim_config *config;
	const struct sim_group_config *groups;
	const struct sim_guest_config *guests;
	const struct sim_task_config *tasks;
};

struct sim_answer {
	struct sim_result *host;
	struct sim_guest_result *guests;
	struct sim_task_result *tasks;
	struct sim_segment *traces;
	char *error; /* 512 bytes: why the scheduler would have been ejected */
	char *stats; /* 4096 bytes: struct gang_sched_stats, all CPUs added up */
};

#endif /* GANG_DESCRIBE_H */
