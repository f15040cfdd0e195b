/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of gang.ko share.
 *
 *   main.c     load and unload, the tracepoints, the table of members
 *   slots.h    the decisions of the slot engine
 *   slot.c     the slot engine: who leads, whose slot it is, which CPUs are poked
 *   boost.c    a thread per CPU that boosts a member, and has it give way
 *   control.c  domains and gangs come and go; one mutex
 *   cgroup.c   the threads of a cgroup as a gang; /sys/kernel/gang
 *   dev.c      the ioctls of /dev/gang
 *
 * Locks, outermost first:
 *   gang_control      mutex: everything that comes and goes
 *   column->mutex     one boost at a time on a CPU
 *   (rq->lock         held by the scheduler around the sched_switch and sched_wakeup probes)
 *   domain->lock      raw: the slot, ready/running, who is on CPU
 * Below domain->lock only the timer's base is locked. Nothing is woken and no memory is
 * touched that could fault while it is held.
 */
#ifndef GANG_MODULE_H
#define GANG_MODULE_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/spinlock.h>

#include "slots.h"

#define GANG_SLOT_MIN_NS    1000000ULL
#define GANG_SLOT_MAX_NS    100000000ULL
#define GANG_BOOST_PRIORITY 1 /* SCHED_FIFO */

struct gang_dom;
struct gang;

/* One thread of a gang. Found by its task, freed after a grace period. */
struct gang_thread {
	struct hlist_node node;
	struct rcu_head rcu;
	struct task_struct *task; /* a reference */
	struct gang *gang;
	u32 column;
	bool ended; /* it has exited; the reaper will take it out */
	u64 since;  /* on CPU since, 0 while it is not; domain->lock */
	/* While it is boosted: what it was before. column->mutex */
	u32 policy;
	bool reset_on_fork;
	u64 slice;
	u64 slack;
};

/* One CPU of a gang domain. */
struct gang_column {
	struct gang_dom *dom;
	unsigned int cpu;
	u32 index;
	struct task_struct *worker;
	call_single_data_t kick;
	struct irq_work lead;
	atomic_t poked;
	struct mutex mutex;
	struct gang_thread *boosted; /* written under mutex and dom->lock, read under either */
	/* The boosted member gives way to threads of the kernel that are bound to this CPU. */
	struct irq_work way;
	u32 bound_nr;	 /* such threads that are runnable; rq->lock, and 0 by the worker */
	bool way_used;	 /* one of them ran since the way was opened; rq->lock */
	bool way_missed; /* the member was picked all the same; rq->lock */
	bool gives_way;	 /* the member is SCHED_IDLE meanwhile; written under mutex */
	u32 way_idle;	 /* ways in a row that none of them used; mutex */
	u64 way_edge;	 /* when the way ends, or, closed, when the next may be opened; mutex */
	struct gang_thread *current_thread; /* dom->lock */
	/* Written by this CPU with interrupts off. */
	bool other_runs;  /* an ordinary task is on CPU */
	bool other_waits; /* an ordinary task was preempted or woken here and has not had its turn
			   */
	bool other_ran;	  /* since the slot was opened */
	u64 used;	  /* by the owner in the present slot, ns; dom->lock */
};

/* A gang domain at work. */
struct gang_dom {
	raw_spinlock_t lock;
	u32 index;
	struct hrtimer timer;
	struct gang_slot slot;
	u64 boosted_ns;	   /* boosted time since ordinary tasks last had a slot */
	bool slot_boosted; /* the open slot was given to gangs */
	/* By the gang's number in slots.h, which counts within the domain; grown under lock. */
	u32 room;
	struct gang_state *state;
	struct gang **gang;
	u32 columns;
	struct gang_column column[];
};

struct gang {
	u32 number; /* user space's */
	u16 local;  /* that of slots.h */
	struct gang_dom *dom;
	const void *owner; /* the open file it lives as long as; NULL: /sys/kernel/gang */
	u32 threads;
	struct gang_stats stats;		      /* dom->lock */
	struct gang_thread *thread[GANG_DOMAIN_CPUS]; /* dom->lock */
};

/* A thread that is to become a member. The reference to the task goes with it. */
struct gang_seat {
	struct task_struct *task;
	u32 column;
};

extern struct mutex gang_control;

/* struct gang_ioc_counters, counted from any context. */
enum gang_count {
	GANG_COUNT_SLOTS,
	GANG_COUNT_OTHER_SLOTS,
	GANG_COUNT_GAPS,
	GANG_COUNT_KICKS,
	GANG_COUNT_BOOSTS,
	GANG_COUNT_UNBOOSTS,
	GANG_COUNT_EXITS,
	GANG_COUNT_WAYS,
	GANG_COUNTS,
};
void gang_count(enum gang_count what);
u64 gang_counted(enum gang_count what);

/* main.c */
int gang_watch(void);
void gang_unwatch(void);
void gang_thread_add(struct gang_thread *thread);
void gang_thread_del(struct gang_thread *thread);
void gang_column_here(unsigned int cpu, struct gang_column *column);
struct gang_column *gang_column_of(unsigned int cpu);

/* slot.c */
void gang_slot_start(struct gang_dom *dom);
void gang_slot_stop(struct gang_dom *dom);
void gang_slot_column(struct gang_column *column);
void gang_on_cpu(struct gang_thread *thread, struct gang_column *here, u64 now);
void gang_off_cpu(struct gang_thread *thread, struct gang_column *here, bool blocked, u64 now);
void gang_woken(struct gang_thread *thread, u64 now);
struct gang_thread *gang_slot_owner(struct gang_column *column);

/* boost.c */
int gang_worker_start(struct gang_column *column);
void gang_worker_stop(struct gang_column *column);
void gang_poke(struct gang_column *column);
void gang_unboost(struct gang_column *column, struct gang_thread *thread);
void gang_bound_woken(struct gang_column *column);
void gang_bound_runs(struct gang_column *column);
void gang_bound_sleeps(struct gang_column *column);
void gang_way_missed(struct gang_column *column);
void gang_forked(struct gang_thread *parent, struct task_struct *child);
void gang_forks_flush(void);

/* control.c: all with gang_control held */
int gang_domain_set(const void *owner, u32 index, const struct gang_domain *cpus);
int gang_set(const void *owner, u32 number, u32 domain, u32 weight, u32 mode,
	     struct gang_seat *seats, u32 count);
int gang_drop(const void *owner, u32 number);
void gang_drop_all(const void *owner);
void gang_reap(void);
struct gang *gang_find(u32 number);
struct gang_dom *gang_domain_find(u32 index);
bool gang_domain_owned(u32 index, const void *owner);
void gang_totals(u64 *gangs, u64 *threads);

/* cgroup.c */
struct cgroup;
int gang_set_cgroup(const void *owner, u32 number, u32 domain, u32 weight, struct cgroup *cgroup,
		    u32 *seated, u32 *others);
int gang_sysfs_init(void);
void gang_sysfs_exit(void);

/* dev.c */
int gang_dev_init(void);
void gang_dev_exit(void);

/* selftest.c */
#ifdef GANG_DEBUG
int gang_selftest(void);
bool gang_boost_for_test(struct gang_column *column, struct gang_thread *thread);
#else
static inline int gang_selftest(void)
{
	return 0;
}
#endif

#endif /* GANG_MODULE_H */
