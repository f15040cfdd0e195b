/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The only contract between the kernel side of gangd and its user space.
 *
 * Everything that crosses the border is one of the structs below: a map key, a
 * map value, or an ioctl argument. Rules of the file:
 *   - fixed-width types, explicit padding, sizes asserted at the end;
 *   - times are nanoseconds of CLOCK_MONOTONIC, counters only grow;
 *   - no pointer, no bool, no bit-field, no enum as a member type;
 *   - a change of layout or meaning raises GANG_ABI_VERSION.
 * daemon/gangd/bpf/abi.py is its mirror; tests/contract/test_abi.py compiles
 * this header and compares the two member by member.
 */
#ifndef GANG_ABI_H
#define GANG_ABI_H

#ifndef GANG_TYPES_DEFINED
#include <linux/ioctl.h>
#include <linux/types.h>
#endif

#define GANG_ABI_VERSION 4

#define GANG_MAX_CPUS	    1024 /* CPUs of a host */
#define GANG_MAX_GANGS	    1024 /* guests scheduled as gangs; gang 0 means "no gang" */
#define GANG_MAX_GUESTS	    4096 /* guests measured; guest 0 means "no guest" */
#define GANG_MAX_CACHES	    64	 /* caches of a host, see daemon/gangd/model/columns.py */
#define GANG_CACHE_CPUS	    64	 /* CPUs of one cache */
#define GANG_WEIGHT_MIN	    1	 /* cgroup v2 scale */
#define GANG_WEIGHT_DEFAULT 100
#define GANG_WEIGHT_MAX	    10000
#define GANG_MAX_MEMBERS    16384 /* vCPU threads of all gangs */
#define GANG_BUCKETS	    24	  /* of a histogram: bucket b counts times below 2^b us */
#define GANG_DECISIONS	    32	  /* the last ones are kept */
#define GANG_DUMP_BYTES	    8192

/* How a gang is scheduled; loosest first. */
enum gang_mode {
	GANG_MODE_OFF = 0,
	GANG_MODE_BALANCE = 1,
	GANG_MODE_RELAXED = 2,
	GANG_MODE_STRICT = 3,
};

/* ---- gang.bpf.c: the scheduler ------------------------------------------ */

/* map "members": tid -> which gang this thread belongs to */
struct gang_member {
	__u32 tgid; /* guards against a reused tid */
	__u16 gang; /* 1 .. GANG_MAX_GANGS - 1 */
	__u16 vcpu;
};

/* argument of program "set_turns": how long a turn lasts, at most */
struct gang_turn_args {
	__u32 turn_us;
	__u32 pad;
};

/* argument of program "set_gang"; to be run again after "members" changed */
struct gang_args {
	__u32 gang;  /* 1 .. GANG_MAX_GANGS - 1 */
	__u16 cache; /* the cache in which its turns begin */
	__u8 mode;   /* enum gang_mode; OFF takes the gang out */
	__u8 pad;
	__u64 caches; /* where it has turns, a bit each; several: it fits into none */
};

/* argument of program "add_cpu", run for every CPU of the host before the scheduler is attached:
 * core by core, cache by cache */
struct gang_cpu_args {
	__u32 cpu;
	__u32 sibling;	 /* threads of its core added before it */
	__u32 threads;	 /* of its core */
	__u32 new_cache; /* 1: the first CPU of a cache */
};

/* map "gang_stats": gang -> its counters; gang.ko counts turns, whole and early ones, run, apart
 * and skew times */
struct gang_stats {
	/* turns opened for the gang; gang.ko counts its slots here */
	__u64 turns;
	/* turns in which all runnable members were on CPUs at once */
	__u64 whole;
	/* turns in which no member was runnable any more */
	__u64 ended_early;
	/* members that waited when a turn was opened */
	__u64 seats_wanted;
	/* members among these that came on CPU within the turn */
	__u64 seats_had;
	/* CPU time of the members, added up */
	__u64 run_ns;
	/* part of that CPU time outside the gang's turns; it needs none where nobody waits */
	__u64 apart_ns;
	/* part of that CPU time on CPUs that turns took from tasks that were owed them */
	__u64 borrowed_ns;
	/* time in which cpu.max throttled members, added up */
	__u64 throttled_ns;
	/* CPU time of idle halves of cores that a strict gang kept from other tasks */
	__u64 forced_idle_ns;
	/* directed yields of members (PLE) */
	__u64 yields;
	/* directed yields of members whose sibling ran next */
	__u64 yields_hit;
	/* time from the start of a turn to its last member on CPU, added up over whole turns */
	__u64 skew_ns;
	/* the longest time from the start of a turn to its last member on CPU */
	__u64 skew_max_ns;
};

/* map "sched_stats" (per CPU): the scheduler's own account */
struct gang_sched_stats {
	/* turns opened for gangs */
	__u64 turns;
	/* siblings moved to a CPU for a turn */
	__u64 seats;
	/* CPUs that turns took from tasks that were owed them */
	__u64 lent;
	/* woken tasks that took a CPU */
	__u64 preempts;
	/* woken tasks to which their waker handed its CPU over */
	__u64 hands;
	/* directed yields of a spinning member to a sibling (PLE) */
	__u64 yields;
	/* directed yields whose sibling ran next */
	__u64 yields_hit;
	/* gangs that moved to another cache */
	__u64 moves;
	/* tasks that waited too long, and that the scheduler brought forward */
	__u64 rescued;
	/* CPUs that the scheduler woke, since they idled beside a waiting task */
	__u64 rewoken;
	/* CPUs whose chosen task another CPU took first, and that chose again */
	__u64 overtaken;
	/* CPUs kept idle until their core was free of foreign guests (strict) */
	__u64 core_waits;
	/* times that a guest started on a core beside a strict gang's member nevertheless */
	__u64 core_shared;
	/* times that a process asked for core scheduling, and the scheduler refused it */
	__u64 cookies_refused;
	/* tasks queued */
	__u64 enqueues;
	/* tasks dispatched */
	__u64 dispatches;
	/* tasks taken off their CPU */
	__u64 stops;
	/* our own time in what was sampled of each kind */
	__u64 enqueue_ns;
	__u64 enqueue_samples;
	__u64 dispatch_ns;
	__u64 dispatch_samples;
	__u64 stop_ns;
	__u64 stop_samples;
	/* time from the start of a turn to its last member on CPU; the buckets are powers of two */
	__u64 start_skew[GANG_BUCKETS];
};

/* The scheduler did this; the number is in the text of a report, so it never changes its meaning.
 */
enum gang_decision_kind {
	GANG_DECISION_NONE = 0,
	GANG_DECISION_TURN = 1, /* a turn was opened for a gang */
				/* 2 to 8 were decisions about slots */
};

struct gang_decision {
	__u64 time;
	__u32 cpu;
	__u32 gang;
	__u16 kind; /* enum gang_decision_kind */
	__u16 pad;
	__u32 length_us; /* of a turn, at most */
};

/* map "decisions", key 0: a ring; the oldest is at next modulo GANG_DECISIONS */
struct gang_decisions {
	__u32 next;
	__u32 pad;
	struct gang_decision last[GANG_DECISIONS];
};

/* map "exit_record", key 0: why the kernel ejected the scheduler; kind 0 = it did not */
struct gang_exit_record {
	__u32 kind; /* enum scx_exit_kind */
	__u32 pad;
	__s64 code;
	char reason[128];
	char message[1024];
	char dump[GANG_DUMP_BYTES]; /* how the kernel's dump begins: backtrace, slots, gangs */
};

/* ---- lhp.bpf.c: the probes ---------------------------------------------- */

/* map "vcpus": tid -> which guest's vCPU this thread is */
struct lhp_vcpu {
	__u32 tgid;
	__u16 guest; /* 1 .. GANG_MAX_GUESTS - 1 */
	__u16 vcpu;
	__u32 state;	   /* enum lhp_state, owned by the probes */
	__u32 cpu;	   /* where it ran last, from 1; 0: it has not run yet */
	__u64 pause_exits; /* PAUSE exits (VMX 40, SVM 0x77) */
	__u64 lhp_exits;   /* those taken while a runnable sibling was off-CPU */
};

enum lhp_state {
	LHP_UNSEEN = 0, /* no event since it was registered */
	LHP_RUNNING = 1,
	LHP_WAITING = 2, /* runnable, off-CPU */
	LHP_BLOCKED = 3,
};

/* map "guests": guest -> how its vCPUs shared the time in which at least one was on CPU */
struct lhp_guest {
	__u64 word;	 /* when the counts last changed, and the counts: core/lhp_word.h */
	__u64 corun_ns;	 /* no vCPU was runnable and off CPU */
	__u64 costop_ns; /* one was */
};

/* map "exits": exits of one vCPU for one reason -> __u64 count */
struct lhp_exit_key {
	__u16 guest;
	__u16 vcpu;
	__u16 isa; /* arch/x86/kvm/trace.h: KVM_ISA_VMX 1, KVM_ISA_SVM 2 */
	__u16 pad;
	__u32 reason;
	__u32 pad2;
};

/* ---- trace.bpf.c: what gangctl trace sees ------------------------------- */

enum trace_kind {
	TRACE_RUN = 1,	 /* the thread came on CPU */
	TRACE_WAIT = 2,	 /* it lost its CPU, and wants one */
	TRACE_SLEEP = 3, /* it gave its CPU up */
	TRACE_WAKE = 4,	 /* it was woken */
	TRACE_PAUSE = 5, /* it took a PAUSE exit */
	TRACE_YIELD = 6, /* KVM had it yield to a sibling */
	TRACE_TURN = 7,	 /* a turn was opened */
};

/* map "events" (ring buffer): one event */
struct trace_event {
	__u64 time;	 /* ns, CLOCK_MONOTONIC */
	__u32 id;	 /* the thread; of a turn the gang */
	__u32 length_us; /* of a turn, at most */
	__u32 cpu;
	__u32 kind; /* enum trace_kind */
};

/* ---- gang.ko: ioctls of /dev/gang ----------------------------------------- */

/* the CPUs over which gangs are co-scheduled, one a column */
struct gang_domain {
	__u32 columns; /* how many of cpu[] are in use; 0: the domain is not used */
	__u32 slot_us; /* length of a slot */
	__u32 cpu[GANG_CACHE_CPUS];
	__u8 core[GANG_CACHE_CPUS]; /* the lowest column on the same core */
};

/* GANG_IOC_VERSION: what is loaded; needs no right */
struct gang_ioc_version {
	__u32 version; /* GANG_ABI_VERSION of the module */
	__u32 pad;     /* 0 */
};

/* GANG_IOC_SET_DOMAIN: co-schedule over these CPUs; no column: the domain and its gangs are dropped
 */
struct gang_ioc_domain {
	__u32 version; /* GANG_ABI_VERSION of the caller; EPROTO when the module's is another */
	__u32 domain;  /* 0 .. GANG_MAX_CACHES - 1 */
	struct gang_domain cpus;
};

/* where one thread of a gang sits */
struct gang_ioc_seat {
	__u32 tid;
	__u32 column;
};

/* GANG_IOC_SET_GANG: these threads are the gang from now on; mode OFF: drop it */
struct gang_ioc_gang {
	__u32 version;
	__u32 gang; /* 1 .. GANG_MAX_GANGS - 1 */
	__u32 domain;
	__u32 weight; /* GANG_WEIGHT_MIN to GANG_WEIGHT_MAX */
	__u32 mode;   /* enum gang_mode */
	__u32 tgid;   /* guards against a reused tid */
	__u32 seats;  /* how many of seat[] are in use, at most one a column */
	__u32 pad;    /* 0 */
	struct gang_ioc_seat seat[GANG_CACHE_CPUS];
};

/* GANG_IOC_SET_CGROUP: every thread in a cgroup is the gang, each on a CPU it may use */
struct gang_ioc_cgroup {
	__u32 version;
	__u32 gang;
	__u32 domain;
	__u32 weight;
	__s32 fd;     /* the cgroup's directory, opened */
	__u32 seats;  /* out: threads that have a column */
	__u32 others; /* out: threads for which no column was left; they stay ordinary */
	__u32 pad;    /* 0 */
};

/* GANG_IOC_STATS: counters of one gang since it was set up; needs no right */
struct gang_ioc_stats {
	__u32 version;
	__u32 gang;
	struct gang_stats stats;
};

/* GANG_IOC_COUNTERS: the module's own account since it was loaded; needs no right */
struct gang_ioc_counters {
	__u32 version;
	__u32 pad;
	/* slots that gang.ko opened for gangs */
	__u64 slots;
	/* slots that gang.ko opened for everything that is not a gang */
	__u64 other_slots;
	/* part of these that gang.ko opened so that real-time throttling has no cause */
	__u64 gaps;
	/* CPUs that gang.ko interrupted because they were out of place */
	__u64 kicks;
	/* threads that gang.ko raised */
	__u64 boosts;
	/* threads that gang.ko put back */
	__u64 unboosts;
	/* members that ended */
	__u64 exits;
	/* times that a member which gang.ko boosts gave way to a bound thread of the kernel */
	__u64 ways;
	/* gangs that are set up now */
	__u64 gangs;
	/* members of all gangs, now */
	__u64 members;
};

#define GANG_IOC_MAGIC	    0xb9
#define GANG_IOC_VERSION    _IOR(GANG_IOC_MAGIC, 0, struct gang_ioc_version)
#define GANG_IOC_SET_DOMAIN _IOW(GANG_IOC_MAGIC, 1, struct gang_ioc_domain)
#define GANG_IOC_SET_GANG   _IOW(GANG_IOC_MAGIC, 2, struct gang_ioc_gang)
#define GANG_IOC_SET_CGROUP _IOWR(GANG_IOC_MAGIC, 3, struct gang_ioc_cgroup)
#define GANG_IOC_STATS	    _IOWR(GANG_IOC_MAGIC, 4, struct gang_ioc_stats)
#define GANG_IOC_COUNTERS   _IOWR(GANG_IOC_MAGIC, 5, struct gang_ioc_counters)

#define GANG_ASSERT_SIZE(type, size)                                                               \
	_Static_assert(sizeof(struct type) == (size), #type " changed its size")
GANG_ASSERT_SIZE(gang_member, 8);
GANG_ASSERT_SIZE(gang_turn_args, 8);
GANG_ASSERT_SIZE(gang_args, 16);
GANG_ASSERT_SIZE(gang_domain, 328);
GANG_ASSERT_SIZE(gang_cpu_args, 16);
GANG_ASSERT_SIZE(gang_stats, 112);
GANG_ASSERT_SIZE(gang_sched_stats, 376);
GANG_ASSERT_SIZE(gang_decision, 24);
GANG_ASSERT_SIZE(gang_decisions, 776);
GANG_ASSERT_SIZE(gang_exit_record, 9360);
GANG_ASSERT_SIZE(lhp_vcpu, 32);
GANG_ASSERT_SIZE(lhp_guest, 24);
GANG_ASSERT_SIZE(lhp_exit_key, 16);
GANG_ASSERT_SIZE(trace_event, 24);
GANG_ASSERT_SIZE(gang_ioc_version, 8);
GANG_ASSERT_SIZE(gang_ioc_domain, 336);
GANG_ASSERT_SIZE(gang_ioc_seat, 8);
GANG_ASSERT_SIZE(gang_ioc_gang, 544);
GANG_ASSERT_SIZE(gang_ioc_cgroup, 32);
GANG_ASSERT_SIZE(gang_ioc_stats, 120);
GANG_ASSERT_SIZE(gang_ioc_counters, 88);

#endif /* GANG_ABI_H */
