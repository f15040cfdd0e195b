/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structs that all files of gang.ko share: a member, a column, a domain, a gang. The header of
 * a file's name has what it offers; README.md draws which file may use which.
 *
 * Locks, outermost first:
 *   gang_control      mutex: everything that comes and goes
 *   column->mutex     one boost at a time on a CPU
 *   (rq->lock         held by the scheduler around the sched_switch and sched_wakeup probes)
 *   domain->lock      raw: the slot, and which gangs and members there are
 *   column->lock      raw: what was used there
 * Below domain->lock only the timer's base is locked, too. Nothing is woken and no memory is
 * touched that could fault while it is held.
 */
#ifndef GANG_TYPES_H
#define GANG_TYPES_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/mutex.h>
#include <linux/rtmutex.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/spinlock.h>

#include "matrix.h"

#define GANG_SLOT_MIN_NS    1000000ULL
#define GANG_SLOT_MAX_NS    100000000ULL
#define GANG_BOOST_PRIORITY 1 /* SCHED_FIFO */

struct gang_dom;
struct gang;

/* The class that a member has of gang.ko. */
enum gang_class {
	GANG_CLASS_OWN,	    /* none: its own */
	GANG_CLASS_RAISED,  /* SCHED_FIFO, before everything ordinary */
	GANG_CLASS_LOWERED, /* SCHED_IDLE, behind it */
};

/* One thread of a gang. Found by its task, freed after a grace period. */
struct gang_thread {
	struct hlist_node node;
	struct rcu_head rcu;
	struct task_struct *task; /* a reference */
	struct gang *gang;
	u32 column;
	bool ended;	       /* it has exited; the reaper will take it out */
	u64 since;	       /* on CPU since, 0 while it is not; column->lock to charge for it */
	u64 run_ns, apart_ns;  /* as in struct gang_stats; column->lock */
	enum gang_class class; /* column->mutex */
	/* While it is raised or lowered: what it was before. column->mutex */
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
	atomic_t kicking; /* one CPU has taken the kick, and it has not arrived */
	struct irq_work lead;
	atomic_t poked;
	struct rt_mutex mutex; /* an ordinary holder gets the priority of the worker that waits */
	struct gang_thread *boosted; /* written under mutex and dom->lock, read under either */
	struct irq_work poke;	     /* see gang_poke_soon() */
	/* The boosted member gives way to threads of the kernel that are bound to this CPU. */
	u32 bound_nr;	 /* such threads that are runnable; rq->lock, and 0 by the worker */
	bool way_used;	 /* one of them ran since the way was opened; rq->lock */
	bool way_missed; /* a lowered member was picked all the same; rq->lock */
	bool gives_way;	 /* the boosted member is lowered meanwhile; written under mutex */
	u32 way_idle;	 /* ways in a row that none of them used; mutex */
	u64 way_others;	 /* other_ns before the first of those; mutex */
	u64 way_edge;	 /* when the way ends, or, closed, when the next may be opened; mutex */
	u64 fair_since;	 /* no member is boosted since; mutex */
	bool owed;	 /* all members are lowered; as boosted */
	raw_spinlock_t lock;
	struct gang_thread *current_thread; /* written by this CPU; cleared by who takes it out */
	bool other_asleep; /* the ordinary task that ran last went to sleep, and none woke here
			      since */
	u64 other_since;   /* an ordinary task is on CPU since, 0: none is; written by this CPU */
	u64 other_ns;	   /* CPU time of ordinary tasks until then; the same */
	u64 beside;	/* CPU time in this slot of members that ordinary tasks waited for; lock */
	u64 other_paid; /* of all that, what they have paid for; dom->lock */
	u64 used;	/* by the owner in the present slot, ns; lock */
} ____cacheline_aligned_in_smp;

/* A gang domain at work. */
struct gang_dom {
	raw_spinlock_t lock;
	u32 index;
	struct hrtimer timer;
	struct gang_slot slot;
	u64 boosted_ns;	   /* boosted time since ordinary tasks last had a slot */
	bool slot_boosted; /* the open slot was given to gangs */
	/* By the gang's number in matrix.h, which counts within the domain. The probes change the
	 * masks ready, seen and running without the lock. */
	struct gang_state state[GANG_DOMAIN_GANGS];
	struct gang *gang[GANG_DOMAIN_GANGS];
	u32 columns;
	struct gang_column column[];
};

struct gang {
	u32 number; /* user space's */
	u16 local;  /* that of matrix.h */
	struct gang_dom *dom;
	const void *owner; /* the open file it lives as long as; NULL: /sys/kernel/gang */
	u32 threads;
	struct gang_stats
		stats; /* dom->lock; whole and skew: account.c; of members that are gone */
	struct gang_thread *thread[GANG_DOMAIN_CPUS]; /* dom->lock */
};

/* A thread that is to become a member. The reference to the task goes with it. */
struct gang_seat {
	struct task_struct *task;
	u32 column;
};

/* The member that the gang of place @local has on @column; the lock of the domain is held. */
static inline struct gang_thread *gang_member(const struct gang_dom *dom, u32 local, u32 column)
{
	return dom->gang[local] ? dom->gang[local]->thread[column] : NULL;
}

#endif /* GANG_TYPES_H */
