// SPDX-License-Identifier: GPL-2.0
/*
 * The slot engine decides which party has the slot, and tells the CPUs that have to know.
 *
 * The decisions are in matrix.h. This file tells matrix.h which members are runnable, which run and
 * for how long, and carries the row out:
 *
 *   1. Election. The CPU that picks a member after the slot's deadline leads; so does the CPU
 *      where the last runnable member of the row went to sleep. The probe that sees this holds
 *      the runqueue's lock, so it only raises an irq_work on its own CPU.
 *   2. The leader settles accounts, fills a row, stores the word, arms the timer for the
 *      deadline, and kicks CPUs of the domain. gang_next() chooses, not the fair class: a boosted
 *      member runs whatever the fair class would pick.
 *   3. The leader kicks a CPU only if the classes of the members there have to change.
 *
 * A CPU that is boosted without a pause starves all other tasks, and real-time throttling (95 % of
 * a second) would stop the member at an arbitrary moment. After GAP_AFTER_NS of boosted slots there
 * is therefore a gap of 1/GAP_SHARE of that time in which no member is boosted: six gaps in any
 * second, 90 ms, of which slots that end late may take 40.
 */
#include <linux/ktime.h>

#include "account.h"
#include "compat.h"
#include "count.h"
#include "kick.h"
#include "share.h"
#include "slot.h"

#define GAP_AFTER_NS 150000000ULL
#define GAP_SHARE    10

static bool row_has_gangs(const struct gang_dom *dom)
{
	u32 i;

	for (i = 0; i < dom->columns; i++)
		if (gang_owner(&dom->slot, dom->slot.word, i) != GANG_OTHERS)
			return true;
	return false;
}

/*
 * Return true if ordinary tasks want to run on column @i. If they were owed the slot there and went
 * to sleep, a task that is left in the queue is a sleeper, or waits until the next edge.
 */
static bool others_wait(const struct gang_dom *dom, u32 i)
{
	const struct gang_column *column = &dom->column[i];

	return !((dom->slot.owed & gang_bit(i)) && READ_ONCE(column->other_asleep)) &&
	       gang_others_there(column);
}

/*
 * Return true if ordinary tasks have the slot, and none of them is left on a column that is owed to
 * them.
 */
static bool others_done(const struct gang_dom *dom)
{
	u32 i;

	for (i = 0; i < dom->columns; i++)
		if ((dom->slot.owed & gang_bit(i)) && others_wait(dom, i))
			return false;
	return dom->slot.owed;
}

/* Return the columns where ordinary tasks want to run. */
static u64 others_waiting(const struct gang_dom *dom)
{
	u64 waiting = 0;
	u32 i;

	for (i = 0; i < dom->columns; i++)
		if (others_wait(dom, i))
			waiting |= gang_bit(i);
	return waiting;
}

/*
 * Return the CPU time of the ordinary tasks of @column that they have not paid for, and note it as
 * paid.
 */
static u64 others_used(struct gang_column *column, u64 now)
{
	u64 since = READ_ONCE(column->other_since), all = READ_ONCE(column->other_ns), used;

	if (since && now > since)
		all += now - since;
	used = all > column->other_paid ? all - column->other_paid : 0;
	column->other_paid += used;
	return used;
}

/*
 * Charge ordinary tasks for what they used on columns that gangs wanted, whichever party had the
 * slot, less what members used there while those tasks waited.
 */
static void settle_others(struct gang_dom *dom, u64 now)
{
	u32 i;

	for (i = 0; i < dom->columns; i++) {
		u64 used = others_used(&dom->column[i], now);

		u64 beside = gang_collect(&dom->column[i], &dom->column[i].beside);

		if (dom->slot.wanted & gang_bit(i))
			gang_others_pay(&dom->slot, dom->state, i, used, beside);
	}
}

/* Return true for exactly one of the columns that @state has in the row. */
static bool leads_row(const struct gang_state *state, u32 column)
{
	return state->taken && __ffs64(state->taken) == column;
}

/*
 * Settle the accounts of the slot that ends; @early: before its deadline. The time of a slot that
 * was opened for gangs counts as boosted, also if those gangs have been dropped since.
 */
static void settle(struct gang_dom *dom, bool early, u64 now)
{
	u64 passed = now > dom->slot.opened ? now - dom->slot.opened : 0;
	u32 i;

	if (dom->slot_boosted)
		dom->boosted_ns += passed;
	else
		dom->boosted_ns -= min(dom->boosted_ns, GAP_SHARE * passed);
	for (i = 0; i < dom->columns; i++) {
		struct gang_thread *thread = READ_ONCE(dom->column[i].current_thread);

		if (thread)
			gang_settle(thread, now);
	}
	for (i = 0; i < dom->columns; i++) {
		u16 owner = gang_owner(&dom->slot, dom->slot.word, i);
		u64 used = gang_collect(&dom->column[i], &dom->column[i].used);

		if (early && owner && leads_row(&dom->state[owner], i))
			dom->gang[owner]->stats.ended_early++;
		if (owner)
			gang_note_used(&dom->state[owner], used);
	}
	for (i = 0; i < dom->columns; i++)
		gang_pay(&dom->state[gang_owner(&dom->slot, dom->slot.word, i)]);
}

static void clear_row(struct gang_dom *dom, u16 generation)
{
	dom->slot.owed = 0;
	memset(dom->slot.row[generation & 1], 0, sizeof(dom->slot.row[0]));
}

/*
 * Return the length of a slot of ordinary tasks: the time that they are owed before @gang, which
 * waits for it.
 */
static u64 others_length(const struct gang_dom *dom, u16 gang)
{
	u64 length = 0;
	u32 i;

	for (i = 0; i < dom->columns; i++)
		if (dom->slot.owed & gang_bit(i))
			length = max(length, gang_owed_ns(&dom->slot, dom->state, i, gang));
	return clamp(length, GANG_SLOT_MIN_NS, dom->slot.length);
}

/* Fill the row of @generation. Return the length of the new slot, or 0 if it stays closed. */
static u64 fill(struct gang_dom *dom, u16 generation, u64 waiting, u64 now)
{
	u16 gang;
	u64 rank;

	gang = gang_next(&dom->slot, dom->state, dom->index, 0, now, &rank);
	if (!gang) {
		clear_row(dom, generation);
		dom->slot.wanted = 0; /* no gang keeps ordinary tasks from a CPU */
		return 0;
	}
	if (dom->boosted_ns >= GAP_AFTER_NS) {
		clear_row(dom, generation);
		gang_place_others(&dom->slot, 0, now);
		gang_count(GANG_COUNT_GAPS);
		gang_count(GANG_COUNT_OTHER_SLOTS);
		return div_u64(dom->boosted_ns, GAP_SHARE);
	}
	if (gang_fill_row(&dom->slot, dom->state, dom->index, generation, waiting, now))
		return dom->slot.length;
	gang_count(GANG_COUNT_OTHER_SLOTS);
	return others_length(dom, gang);
}

/* Count the slot of each gang in the row. A gang with all members running already is whole. */
static void count_slots(struct gang_dom *dom, u64 now)
{
	u32 i;

	for (i = 0; i < dom->columns; i++) {
		u16 owner = gang_owner(&dom->slot, dom->slot.word, i);

		if (!owner || !leads_row(&dom->state[owner], i))
			continue;
		dom->gang[owner]->stats.turns++;
		gang_count(GANG_COUNT_SLOTS);
		gang_note_whole(dom->gang[owner], now);
	}
}

static struct gang_thread *owner_of(const struct gang_column *column)
{
	struct gang_dom *dom = column->dom;
	u16 owner = gang_owner(&dom->slot, dom->slot.word, column->index);

	return owner ? gang_member(dom, owner, column->index) : NULL;
}

/* Return true if no gang has the column in the open slot, because ordinary tasks come first. */
bool gang_slot_owed(const struct gang_column *column)
{
	const struct gang_slot *slot = &column->dom->slot;

	return !gang_slot_over(slot->word, ktime_get_ns()) &&
	       (slot->owed & gang_bit(column->index));
}

/* Return the columns where the worker has something to do. */
static u64 pokes(struct gang_dom *dom)
{
	u64 mask = 0;
	u32 i;

	for (i = 0; i < dom->columns; i++) {
		const struct gang_column *column = &dom->column[i];

		if (owner_of(column) != column->boosted || gang_slot_owed(column) != column->owed)
			mask |= 1ULL << i;
	}
	return mask;
}

/* Open the next slot if this slot is over. The caller holds no runqueue's lock. */
static void gang_lead(struct gang_dom *dom)
{
	bool over, gangs;
	unsigned long flags;
	u64 now, length, mask, waiting, rank;
	u16 generation;
	u32 i;

	raw_spin_lock_irqsave(&dom->lock, flags);
	now = ktime_get_ns();
	over = gang_slot_over(dom->slot.word, now);
	gangs = row_has_gangs(dom);
	if (!over && !(gangs ? gang_row_idle(dom) : others_done(dom))) {
		raw_spin_unlock_irqrestore(&dom->lock, flags);
		return;
	}
	settle(dom, !over, now);
	settle_others(dom, now);
	waiting = others_waiting(dom);
	do {
		generation = (gang_word_generation(dom->slot.word) + 1) & GANG_GENERATION_MASK;
		length = fill(dom, generation, waiting, now);
		WRITE_ONCE(dom->slot.opened, now);
		smp_store_release(&dom->slot.word,
				  gang_word(generation, length ? now + length : 0));
		/*
		 * a CPU where a member became ready before this store saw the old word and does not
		 * lead: look again
		 */
		smp_mb();
	} while (!length && gang_next(&dom->slot, dom->state, dom->index, 0, now, &rank));
	dom->slot_boosted = row_has_gangs(dom);
	count_slots(dom, now);
	mask = pokes(dom);
	if (length)
		hrtimer_start(&dom->timer, ns_to_ktime(now + length), HRTIMER_MODE_ABS_HARD);
	raw_spin_unlock_irqrestore(&dom->lock, flags);
	for (i = 0; i < dom->columns; i++)
		if (mask & (1ULL << i))
			gang_poke(&dom->column[i]);
}

static void lead_here(struct irq_work *work)
{
	struct gang_column *column = container_of(work, struct gang_column, lead);

	gang_lead(column->dom);
}

static enum hrtimer_restart deadline_passed(struct hrtimer *timer)
{
	gang_lead(container_of(timer, struct gang_dom, timer));
	return HRTIMER_NORESTART;
}

/*
 * Return the thread that the slot gives this CPU to, or NULL if there is none or the slot is over.
 */
struct gang_thread *gang_slot_owner(struct gang_column *column)
{
	struct gang_dom *dom = column->dom;

	lockdep_assert_held(&dom->lock);
	if (gang_slot_over(dom->slot.word, ktime_get_ns()))
		return NULL;
	return owner_of(column);
}

void gang_slot_start(struct gang_dom *dom)
{
	u32 i;

	dom->slot.columns = dom->columns;
	gang_timer_setup(&dom->timer, deadline_passed);
	for (i = 0; i < dom->columns; i++)
		dom->column[i].lead = IRQ_WORK_INIT_HARD(lead_here);
}

/* Stop the slots of the domain: it has no gang any more, and no probe knows its columns. */
void gang_slot_stop(struct gang_dom *dom)
{
	u32 i;

	for (i = 0; i < dom->columns; i++)
		irq_work_sync(&dom->column[i].lead);
	hrtimer_cancel(&dom->timer);
}
