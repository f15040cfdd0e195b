// SPDX-License-Identifier: GPL-2.0
/*
 * The accounts: which members are runnable, which run and for how long, and how much of the slot
 * members and ordinary tasks have used.
 *
 * The probes report every switch of a member, with a runqueue's lock held. At a switch the accounts
 * therefore take no lock that the CPUs of a domain share. Each column has a lock of its own, which
 * is otherwise taken once a slot, and the masks of a gang change by atomic operations. A probe sets
 * its bit before it reads the slot's word; a leader stores the word before it reads the bits again.
 * At least one of the two sees what the other changed.
 */
#include <linux/bitops.h>
#include <linux/sched.h>

#include "account.h"
#include "kick.h"

static struct gang_state *state_of(const struct gang_thread *thread)
{
	return &thread->gang->dom->state[thread->gang->local];
}

static struct gang_column *column_of(const struct gang_thread *thread)
{
	return &thread->gang->dom->column[thread->column];
}

static u64 word_of(const struct gang_dom *dom)
{
	return smp_load_acquire(&dom->slot.word);
}

static bool is_owner(const struct gang_thread *thread)
{
	const struct gang_dom *dom = thread->gang->dom;

	return gang_owner(&dom->slot, word_of(dom), thread->column) == thread->gang->local;
}

static void set_mask(u64 *mask, u32 column)
{
	if (!(READ_ONCE(*mask) & gang_bit(column)))
		set_bit(column, (unsigned long *)mask);
}

static void clear_mask(u64 *mask, u32 column)
{
	clear_bit(column, (unsigned long *)mask);
}

/* Return true if ordinary tasks wait on @thread's column, and no gang has that column. */
static bool runs_beside(const struct gang_thread *thread)
{
	const struct gang_dom *dom = thread->gang->dom;

	return (READ_ONCE(dom->slot.waiting) & gang_bit(thread->column)) &&
	       !READ_ONCE(column_of(thread)->other_asleep) &&
	       gang_owner(&dom->slot, word_of(dom), thread->column) == GANG_OTHERS;
}

/*
 * Charge @thread for @ns of CPU time. A member pays nothing for time outside its gang's slot, but
 * ordinary tasks that waited meanwhile are credited with that time. The caller holds column->lock.
 */
static void charge(struct gang_thread *thread, u64 ns)
{
	struct gang_column *column = column_of(thread);

	thread->run_ns += ns;
	if (is_owner(thread)) {
		column->used += ns;
		return;
	}
	thread->apart_ns += ns;
	if (runs_beside(thread))
		column->beside += ns;
}

/* Charge @thread up to @now if it is on CPU. The next charge counts from @since. */
static void charge_until(struct gang_thread *thread, u64 now, u64 since)
{
	struct gang_column *column = column_of(thread);

	raw_spin_lock(&column->lock);
	if (thread->since) {
		charge(thread, now > thread->since ? now - thread->since : 0);
		WRITE_ONCE(thread->since, since);
	}
	raw_spin_unlock(&column->lock);
}

void gang_settle(struct gang_thread *thread, u64 now)
{
	charge_until(thread, now, now);
}

/* Return the time in the account @ns of @column, and empty the account. */
u64 gang_collect(struct gang_column *column, u64 *ns)
{
	u64 all;

	raw_spin_lock(&column->lock);
	all = *ns;
	*ns = 0;
	raw_spin_unlock(&column->lock);
	return all;
}

void gang_add_thread_stats(struct gang_stats *stats, const struct gang_thread *thread)
{
	struct gang_column *column = column_of(thread);

	raw_spin_lock(&column->lock);
	stats->run_ns += thread->run_ns;
	stats->apart_ns += thread->apart_ns;
	raw_spin_unlock(&column->lock);
}

/*
 * Count the slot as whole if all runnable members of @gang are on CPU. The first CPU that sees this
 * counts it, once a slot.
 */
void gang_note_whole(struct gang *gang, u64 now)
{
	struct gang_dom *dom = gang->dom;
	struct gang_state *state = &dom->state[gang->local];
	u64 opened = READ_ONCE(dom->slot.opened), skew = now > opened ? now - opened : 0;

	if (READ_ONCE(state->whole) || !gang_all_running(state) || xchg(&state->whole, 1))
		return;
	gang->stats.whole++;
	gang->stats.skew_ns += skew;
	if (skew > gang->stats.skew_max_ns)
		gang->stats.skew_max_ns = skew;
}

/* Return true if a gang has the slot, and no member of the row can run. */
bool gang_row_idle(const struct gang_dom *dom)
{
	u64 word = word_of(dom);
	bool owned = false;
	u32 i;

	for (i = 0; i < dom->columns; i++) {
		u16 owner = gang_owner(&dom->slot, word, i);

		if (owner && READ_ONCE(dom->state[owner].ready))
			return false;
		owned |= owner != GANG_OTHERS;
	}
	return owned;
}

static void note_ready(struct gang_thread *thread, u64 now)
{
	struct gang_state *state = state_of(thread);

	if (!READ_ONCE(state->ready))
		WRITE_ONCE(state->last_slot, now);
	set_mask(&state->ready, thread->column);
}

/*
 * Return true if the CPU of @thread leads: the slot is over, or it belongs to ordinary tasks that
 * have gone to sleep here, so that it may be over.
 */
static bool leads(const struct gang_thread *thread, u64 now)
{
	const struct gang_column *column = column_of(thread);

	return state_of(thread)->mode >= GANG_MODE_RELAXED &&
	       (gang_slot_over(word_of(thread->gang->dom), now) ||
		(READ_ONCE(column->owed) && READ_ONCE(column->other_asleep)));
}

void gang_on_cpu(struct gang_thread *thread, struct gang_column *here, u64 now)
{
	WRITE_ONCE(thread->since, now);
	if (here && here->dom == thread->gang->dom)
		WRITE_ONCE(here->current_thread, thread);
	note_ready(thread, now);
	set_mask(&state_of(thread)->running, thread->column);
	smp_mb__after_atomic();
	if (is_owner(thread))
		gang_note_whole(thread->gang, now);
	if (leads(thread, now))
		irq_work_queue(&column_of(thread)->lead);
}

void gang_off_cpu(struct gang_thread *thread, struct gang_column *here, bool blocked, u64 now)
{
	struct gang_state *state = state_of(thread);

	charge_until(thread, now, 0);
	if (here && READ_ONCE(here->current_thread) == thread)
		WRITE_ONCE(here->current_thread, NULL);
	clear_mask(&state->running, thread->column);
	if (!blocked)
		return;
	clear_mask(&state->ready, thread->column);
	smp_mb__after_atomic();
	if (!READ_ONCE(state->ready) && is_owner(thread) && gang_row_idle(thread->gang->dom))
		irq_work_queue(&column_of(thread)->lead);
}

/*
 * Return true if @thread, which woke, joins the open row: its gang has columns of that row, and its
 * own column is free and not owed to ordinary tasks.
 */
static bool joins_row(const struct gang_thread *thread, u64 now)
{
	const struct gang_slot *slot = &thread->gang->dom->slot;
	u64 word = word_of(thread->gang->dom), taken = READ_ONCE(state_of(thread)->taken);

	return !gang_slot_over(word, now) && taken &&
	       gang_owner(slot, word, __ffs64(taken)) == thread->gang->local &&
	       gang_owner(slot, word, thread->column) == GANG_OTHERS &&
	       !(READ_ONCE(slot->owed) & gang_bit(thread->column));
}

void gang_woken(struct gang_thread *thread, u64 now)
{
	struct gang_dom *dom = thread->gang->dom;
	unsigned long flags;
	bool joins;

	note_ready(thread, now);
	set_mask(&state_of(thread)->seen, thread->column);
	if (!joins_row(thread, now))
		return;
	raw_spin_lock_irqsave(&dom->lock, flags);
	joins = joins_row(thread, now);
	if (joins) {
		dom->slot.row[dom->slot.word & 1][thread->column] = thread->gang->local;
		state_of(thread)->taken |= gang_bit(thread->column);
	}
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	if (joins)
		gang_poke_soon(column_of(thread));
}

/*
 * Record the state that the scheduler gave @thread before the probes saw it. The probes see every
 * later change.
 */
void gang_look_at(struct gang_thread *thread, u64 now)
{
	struct gang_state *state = state_of(thread);

	if (thread->since || READ_ONCE(thread->task->__state) != TASK_RUNNING)
		return;
	set_mask(&state->ready, thread->column);
	if (READ_ONCE(thread->task->on_cpu)) {
		set_mask(&state->running, thread->column);
		WRITE_ONCE(thread->since, now);
	}
}
