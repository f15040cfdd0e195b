// SPDX-License-Identifier: GPL-2.0
/*
 * Gangs and their domains come and go. All of this runs in process context with gang_control held.
 *
 * A member leaves in this order: no probe finds it (hash, grace period), the slot no longer names
 * it (domain lock), its boost ends (column mutex), the module puts the reference to its task.
 */
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "account.h"
#include "boost.h"
#include "control.h"
#include "count.h"
#include "domain.h"
#include "registry.h"
#include "watch.h"

DEFINE_MUTEX(gang_control);
static DEFINE_XARRAY(gangs);
static u32 gang_total;

struct gang *gang_find(u32 number)
{
	lockdep_assert_held(&gang_control);
	return xa_load(&gangs, number);
}

void gang_totals(u64 *total, u64 *threads)
{
	unsigned long number;
	struct gang *gang;

	lockdep_assert_held(&gang_control);
	*total = gang_total;
	*threads = 0;
	xa_for_each(&gangs, number, gang)
		*threads += gang->threads;
}

/* ---- members ---------------------------------------------------------- */

static void unhook_threads(struct gang *gang, u64 columns)
{
	u32 i;

	for (i = 0; i < gang->dom->columns; i++)
		if ((columns & (1ULL << i)) && gang->thread[i])
			gang_thread_del(gang->thread[i]);
	/* The probes run with preemption disabled; irq_works hold no member. */
	synchronize_rcu();
}

/* Take the members on @columns out of @gang, and put the references to their tasks. */
static void take_out(struct gang *gang, u64 columns)
{
	struct gang_thread *gone[GANG_CACHE_CPUS] = {};
	struct gang_dom *dom = gang->dom;
	struct gang_state *state;
	unsigned long flags;
	u32 i;

	unhook_threads(gang, columns);
	raw_spin_lock_irqsave(&dom->lock, flags);
	state = &dom->state[gang->local];
	for (i = 0; i < dom->columns; i++) {
		if (!(columns & (1ULL << i)) || !gang->thread[i])
			continue;
		gone[i] = gang->thread[i];
		gang->thread[i] = NULL;
		gang->threads--;
		gang_add_thread_stats(&gang->stats, gone[i]);
	}
	for (i = 0; i < dom->columns; i++) {
		struct gang_thread *thread = READ_ONCE(dom->column[i].current_thread);

		if (thread && thread->gang == gang && gone[thread->column] == thread)
			cmpxchg(&dom->column[i].current_thread, thread, NULL);
	}
	state->columns &= ~columns;
	atomic64_andnot(columns, (atomic64_t *)&state->ready);
	atomic64_andnot(columns, (atomic64_t *)&state->running);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	for (i = 0; i < dom->columns; i++) {
		if (!gone[i])
			continue;
		gang_unboost(&dom->column[i], gone[i]);
		put_task_struct(gone[i]->task);
		kfree(gone[i]);
	}
}

/* Take members that have exited out of their gangs. */
static void reap(void)
{
	unsigned long number;
	struct gang *gang;
	u64 ended;
	u32 i;

	xa_for_each(&gangs, number, gang) {
		for (ended = 0, i = 0; i < gang->dom->columns; i++) {
			if (!gang->thread[i] || !READ_ONCE(gang->thread[i]->ended))
				continue;
			ended |= 1ULL << i;
			gang_count(GANG_COUNT_EXITS);
		}
		if (ended)
			take_out(gang, ended);
	}
}

static void reap_exited(struct work_struct *work)
{
	mutex_lock(&gang_control);
	reap();
	mutex_unlock(&gang_control);
}

static DECLARE_WORK(exited, reap_exited);

/* Cancel the work that takes exited members out: no probe sees an exit any more. */
void gang_control_flush(void)
{
	cancel_work_sync(&exited);
}

static void take_in(struct gang *gang, struct gang_thread **threads, u32 count)
{
	struct gang_dom *dom = gang->dom;
	unsigned long flags;
	u32 i;

	for (i = 0; i < count; i++)
		gang_thread_add(threads[i]);
	raw_spin_lock_irqsave(&dom->lock, flags);
	for (i = 0; i < count; i++) {
		gang->thread[threads[i]->column] = threads[i];
		dom->state[gang->local].columns |= 1ULL << threads[i]->column;
		gang_look_at(threads[i], ktime_get_ns());
	}
	gang->threads = count;
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	/* A thread that exited before the probes could find it has scheduled no work. */
	for (i = 0; i < count; i++)
		if (threads[i]->task->flags & PF_EXITING)
			threads[i]->ended = true;
	reap();
}

/* ---- gangs ------------------------------------------------------------ */

/* Give @gang a place in @dom. Return its number there, or 0 if there is none left. */
static u16 place(struct gang_dom *dom, struct gang *gang)
{
	unsigned long flags;
	u32 local;

	for (local = 1; local < GANG_DOMAIN_GANGS && dom->gang[local]; local++)
		;
	if (local == GANG_DOMAIN_GANGS)
		return 0;
	raw_spin_lock_irqsave(&dom->lock, flags);
	dom->gang[local] = gang;
	memset(&dom->state[local], 0, sizeof(dom->state[local]));
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	return local;
}

/* List exactly the gangs that the domain has: gang_next() looks through this list. */
static void list_gangs(struct gang_dom *dom)
{
	u32 i, count = 0;

	lockdep_assert_held(&dom->lock);
	for (i = 1; i < GANG_DOMAIN_GANGS; i++)
		if (dom->gang[i])
			dom->slot.list[count++] = i;
	dom->slot.gangs = count;
}

static void set_state(struct gang *gang, u32 weight, u32 mode)
{
	struct gang_dom *dom = gang->dom;
	struct gang_state *state;
	unsigned long flags;

	raw_spin_lock_irqsave(&dom->lock, flags);
	state = &dom->state[gang->local];
	state->weight = weight;
	state->mode = mode;
	state->domain = dom->index;
	state->vtime = dom->slot.vclock;
	state->last_slot = ktime_get_ns();
	list_gangs(dom);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
}

static void unplace(struct gang *gang)
{
	struct gang_dom *dom = gang->dom;
	unsigned long flags;
	u32 i;

	raw_spin_lock_irqsave(&dom->lock, flags);
	for (i = 0; i < GANG_CACHE_CPUS; i++) {
		if (dom->slot.row[0][i] == gang->local)
			dom->slot.row[0][i] = GANG_OTHERS;
		if (dom->slot.row[1][i] == gang->local)
			dom->slot.row[1][i] = GANG_OTHERS;
	}
	dom->gang[gang->local] = NULL;
	list_gangs(dom);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
}

static void put_seats(struct gang_seat *seats, u32 count)
{
	while (count--)
		put_task_struct(seats[count].task);
}

static int new_threads(struct gang *gang, const struct gang_seat *seats, u32 count,
		       struct gang_thread **threads)
{
	u64 taken = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		if (seats[i].column >= gang->dom->columns || (taken & (1ULL << seats[i].column)))
			goto invalid;
		taken |= 1ULL << seats[i].column;
		threads[i] = kzalloc(sizeof(*threads[i]), GFP_KERNEL);
		if (!threads[i])
			goto invalid;
		threads[i]->task = seats[i].task;
		threads[i]->column = seats[i].column;
		threads[i]->gang = gang;
	}
	return 0;
invalid:
	while (i--)
		kfree(threads[i]);
	return -EINVAL;
}

static bool has_member(const struct gang *gang, const struct task_struct *task)
{
	u32 column;

	for (column = 0; column < gang->dom->columns; column++)
		if (gang->thread[column] && gang->thread[column]->task == task)
			return true;
	return false;
}

/* Return true if a thread has two seats, or is a member already: a thread is in one gang, once. */
static bool member_elsewhere(const struct gang_seat *seats, u32 count)
{
	unsigned long number;
	struct gang *gang;
	u32 i, before;

	for (i = 0; i < count; i++) {
		for (before = 0; before < i; before++)
			if (seats[i].task == seats[before].task)
				return true;
		xa_for_each(&gangs, number, gang)
			if (has_member(gang, seats[i].task))
				return true;
	}
	return false;
}

static void forget(struct gang *gang)
{
	unplace(gang);
	xa_erase(&gangs, gang->number);
	kfree(gang);
	if (!--gang_total)
		gang_unwatch();
}

int gang_drop(const void *owner, u32 number)
{
	struct gang *gang = gang_find(number);

	if (!gang)
		return -ENOENT;
	if (gang->owner != owner)
		return -EBUSY;
	take_out(gang, ~0ULL);
	forget(gang);
	return 0;
}

static struct gang *new_gang(const void *owner, u32 number, struct gang_dom *dom)
{
	struct gang *gang = kzalloc(sizeof(*gang), GFP_KERNEL);

	if (!gang)
		return NULL;
	gang->number = number;
	gang->owner = owner;
	gang->dom = dom;
	gang->local = place(dom, gang);
	if (!gang->local) {
		kfree(gang);
		return NULL;
	}
	if (xa_err(xa_store(&gangs, number, gang, GFP_KERNEL))) {
		unplace(gang);
		kfree(gang);
		return NULL;
	}
	return gang;
}

/*
 * Set a gang up, or set it up anew. The function takes over the references to the seats' tasks,
 * whatever it returns.
 */
int gang_set(const void *owner, u32 number, u32 domain, u32 weight, u32 mode,
	     struct gang_seat *seats, u32 count)
{
	struct gang_thread *threads[GANG_CACHE_CPUS];
	struct gang_dom *dom = gang_domain_find(domain);
	struct gang *gang = gang_find(number);
	int error = -EINVAL;

	if (!dom || !gang_domain_owned(domain, owner) || !count || count > dom->columns)
		goto refused;
	error = -EOPNOTSUPP; /* the module cannot keep a CPU idle */
	if (mode == GANG_MODE_STRICT)
		goto refused;
	error = gang ? gang_drop(owner, number) : 0;
	if (error)
		goto refused;
	error = -EBUSY;
	if (member_elsewhere(seats, count))
		goto refused;
	error = -ENOSPC;
	gang = new_gang(owner, number, dom);
	if (!gang)
		goto refused;
	if (!gang_total++) {
		error = gang_watch(&exited);
		if (error) {
			gang_total--;
			goto unwatched;
		}
	}
	error = new_threads(gang, seats, count, threads);
	if (error) {
		forget(gang);
		goto refused;
	}
	set_state(gang, weight, mode);
	take_in(gang, threads, count);
	return 0;
unwatched:
	unplace(gang);
	xa_erase(&gangs, number);
	kfree(gang);
refused:
	put_seats(seats, count);
	return error;
}

/* ---- domains ----------------------------------------------------------- */

static void drop_domain(u32 index)
{
	unsigned long number;
	struct gang *gang;

	xa_for_each(&gangs, number, gang)
		if (gang->dom == gang_domain_find(index))
			gang_drop(gang->owner, gang->number);
	gang_domain_free(index);
}

void gang_drop_all(const void *owner)
{
	u32 i;

	for (i = 0; i < GANG_MAX_CACHES; i++)
		if (gang_domain_find(i) && gang_domain_owned(i, owner))
			drop_domain(i);
}

/*
 * Set a domain up. A domain that is given no columns is dropped; a domain that is given other CPUs
 * becomes a new one without gangs.
 */
int gang_domain_set(const void *owner, u32 index, const struct gang_domain *cpus)
{
	struct gang_dom *old = gang_domain_find(index);

	if (old && !gang_domain_owned(index, owner))
		return -EBUSY;
	if (!cpus->columns) {
		if (!old)
			return -ENOENT;
		drop_domain(index);
		return 0;
	}
	if (!gang_domain_usable(cpus, old))
		return -EINVAL;
	if (old && gang_domain_same(old, cpus)) {
		gang_domain_tune(old, cpus->slot_us);
		return 0;
	}
	if (old)
		drop_domain(index);
	return gang_domain_make(owner, index, cpus);
}
