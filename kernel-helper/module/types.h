/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structs that all files of gang.ko share: a member, a column, a domain, a gang. The header of
 * a file's name has what the file offers; README.md draws which file may use which.
 *
 * Locks, outermost first:
 *   gang_control      mutex: gangs, members and domains come and go
 *   column->mutex     a CPU changes one boost at a time
 *   (rq->lock         the scheduler holds it around the sched_switch and sched_wakeup probes)
 *   domain->lock      raw: the slot, and which gangs and members there are
 *   column->lock      raw: the CPU time that was used there
 * A CPU that holds domain->lock takes column->lock and that of the timer's base, and no other. It
 * wakes no thread meanwhile, and touches no memory that could fault.
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

extern struct mutex gang_control;

#define GANG_SLOT_MIN_NS    1000000ULL
#define GANG_SLOT_MAX_NS    100000000ULL
#define GANG_BOOST_PRIORITY 1 /* SCHED_FIFO */

struct gang_dom;
struct gang;

/* The class that gang.ko has given a member. */
enum gang_class {
	GANG_CLASS_OWN,	    /* none: the member has its own class */
	GANG_CLASS_RAISED,  /* SCHED_FIFO: the member runs before every ordinary task */
	GANG_CLASS_LOWERED, /* SCHED_IDLE: the member runs behind every ordinary task */
};

/*
 * A thread of a gang. The registry finds it by its task; control.c frees it after a grace period.
 */
struct gang_thread {
	struct hlist_node node;
	struct rcu_head rcu;
	struct task_struct *task; /* the member holds a reference */
	struct gang *gang;
	u32 column;
	bool ended; /* the thread has exited; the reaper will take it out */
	u64 since;  /* when the thread came on CPU, 0 while off; column->lock to charge for it */
	u64 run_ns, apart_ns;  /* see struct gang_stats; column->lock */
	enum gang_class class; /* column->mutex */
	/* The policy of the thread before gang.ko raised or lowered the thread. column->mutex */
	u32 policy;
	bool reset_on_fork;
	u64 slice;
	u64 slack;
};

/* A CPU of a domain. */
struct gang_column {
	struct gang_dom *dom;
	unsigned int cpu;
	u32 index;
	struct task_struct *worker;
	call_single_data_t kick;
	atomic_t kicking; /* a CPU has sent the kick, and the kick has not arrived */
	struct irq_work lead;
	atomic_t poked;
	struct rt_mutex mutex;	     /* a holder that is an ordinary task inherits the priority of a
					worker that waits */
	struct gang_thread *boosted; /* written under mutex and dom->lock, read under either */
	struct irq_work poke;	     /* see gang_poke_soon() */
	/* The boosted member gives way to kernel threads that are bound to this CPU. */
	u32 bound_nr;  /* bound threads that are runnable; rq->lock, but the worker sets it to 0 */
	bool way_used; /* a bound thread ran since the way was opened; rq->lock */
	bool way_missed; /* the CPU picked a lowered member while another task waited; rq->lock */
	bool gives_way;	 /* the boosted member is lowered for bound threads; written under mutex */
	u32 way_idle;	 /* ways in a row that no bound thread used; mutex */
	u64 way_others;	 /* other_ns before the first of those ways; mutex */
	u64 way_edge;	 /* when the open way ends, or the next way may be opened; mutex */
	u64 fair_since;	 /* since when no member is boosted; mutex */
	bool owed;	 /* members are lowered; locked like boosted */
	raw_spinlock_t lock;
	struct gang_thread *current_thread; /* written by this CPU; control.c clears it when it
					       takes the member out */
	bool other_asleep; /* the ordinary task that ran last went to sleep, and no ordinary task
			      woke here since */
	u64 other_since;   /* when an ordinary task came on CPU, 0: none is; written by this CPU */
	u64 other_ns;	   /* CPU time of ordinary tasks until then; written by this CPU */
	u64 beside; /* CPU time that members used in this slot while ordinary tasks waited; lock */
	u64 other_paid; /* the part of all that CPU time that ordinary tasks have paid for;
			   dom->lock */
	u64 used;	/* CPU time that the owner used in the present slot, ns; lock */
} ____cacheline_aligned_in_smp;

/* A domain at work. */
struct gang_dom {
	raw_spinlock_t lock;
	u32 index;
	struct hrtimer timer;
	struct gang_slot slot;
	u64 boosted_ns;	   /* boosted time that slots of ordinary tasks have not made up for yet */
	bool slot_boosted; /* the open slot was given to gangs */
	/*
	 * The index is the gang's number in matrix.h, which counts within the domain. The probes
	 * change the masks ready, seen and running without the lock.
	 */
	struct gang_state state[GANG_DOMAIN_GANGS];
	struct gang *gang[GANG_DOMAIN_GANGS];
	u32 columns;
	struct gang_column column[];
};

struct gang {
	u32 number; /* user space's number of the gang */
	u16 local;  /* the gang's number in matrix.h */
	struct gang_dom *dom;
	const void *owner; /* the gang lives as long as this open file; NULL: /sys/kernel/gang */
	u32 threads;
	struct gang_stats stats; /* dom->lock; whole and skew: account.c; CPU times: of members that
				    are gone */
	struct gang_thread *thread[GANG_CACHE_CPUS]; /* dom->lock */
};

/* A thread that is to become a member. The reference to the task goes with the seat. */
struct gang_seat {
	struct task_struct *task;
	u32 column;
};

/*
 * Return the member that gang @local has on @column, or NULL. The caller holds the lock of the
 * domain.
 */
static inline struct gang_thread *gang_member(const struct gang_dom *dom, u32 local, u32 column)
{
	return dom->gang[local] ? dom->gang[local]->thread[column] : NULL;
}

#endif /* GANG_TYPES_H */
