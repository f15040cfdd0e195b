/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The decisions of gang.ko: which gangs fill the next slot, when a slot is over, how a gang is
 * charged.
 *
 * These are plain functions over plain structs, and call nothing of the kernel: tests/unit/core
 * compiles them for user space.
 *
 * The picture is Ousterhout's matrix (1982). A domain has up to 64 CPUs, its columns. A slot
 * is one row: gangs with disjoint columns share it.
 *
 *              col 0   col 1   col 2   col 3
 *   slot n      A       A       B       B
 *   slot n+1    C       C       C       C
 *   slot n+2    (others: everything that is not a gang)
 *
 * Rows are not fixed. At every slot edge the leader picks the gang with the least virtual time
 * among those with a runnable member, then fills the columns that this gang leaves free with the
 * next gangs in the order of virtual times. A gang takes the columns on which a member of it was
 * runnable since its last slot, no others. "Others" compete column by column: the ordinary tasks of
 * each column have a virtual time of their own, and the weight that the fair class gives them there
 * (share.c). Ordinary tasks get a column that is owed to them; gangs that need the column wait, and
 * the members there are lowered.
 *
 * The state of a slot, (generation, deadline), is one 64-bit word, which the leader stores once the
 * row is complete. A CPU that reads the word sees the whole row or the whole row before it, never
 * half of one. Rows alternate between two buffers, and the lowest bit of the generation picks the
 * buffer, so the row before stays intact meanwhile.
 *
 *     63                               16 15            0
 *     +----------------------------------+---------------+
 *     | deadline, units of 1024 ns       | generation    |
 *     +----------------------------------+---------------+
 *
 * Three things go wrong with such a matrix, and each has its remedy:
 *   - idle credit: a gang that slept could claim the host for as long as it slept. Its virtual
 *     time is raised to at most one slot behind the clock.
 *   - starvation: weights of 1 : 10000 would starve a gang past the kernel's watchdog. A party
 *     that waited longer than GANG_STARVE_NS goes first.
 *   - halted members: a gang pays for what its busiest column used of its slot. If it paid for
 *     the mean of its columns, a gang of eight with one busy member would have that column for
 *     eight ninths of the time, against a gang that needs all eight.
 */
#ifndef GANG_MATRIX_H
#define GANG_MATRIX_H

#include "gang_abi.h"

#define GANG_OTHERS	     0	  /* the party of everything that is not a gang */
#define GANG_DOMAIN_GANGS    256  /* gangs that a domain can hold, at any time in its life */
#define GANG_ROW_GANGS	     16	  /* gangs that can share one slot */
#define GANG_ODDS_ONE	     1024 /* ordinary tasks weigh as much as the members of their column */
#define GANG_OTHERS_MOST     972  /* of GANG_ODDS_ONE: tasks get at most 95 % of a column */
#define GANG_OTHERS_AHEAD    4	  /* slots that ordinary tasks may have had in advance */
#define GANG_CREDIT	     16	  /* tasks that begin to wait have 1/16 of a slot at once */
#define GANG_STARVE_NS	     2000000000ULL
#define GANG_FED	     (1ULL << 63) /* a bit of a rank: the party does not starve */
#define GANG_UNIT_SHIFT	     10
#define GANG_GENERATION_MASK 0xffffULL

/* The state of one gang. */
struct gang_state {
	__u64 columns; /* columns where the gang has members */
	__u64 taken;   /* columns that the gang took of the row it was in last */
	__u64 ready;   /* columns with a runnable member */
	__u64 seen;    /* columns where a member was runnable since the gang's last slot */
	__u64 running; /* columns with a member on CPU; part of ready */
	__u64 used;    /* CPU time that its busiest column used of the slot that ends, ns */
	__u64 vtime;
	__u64 last_slot; /* when the gang last had a slot, or became ready */
	__u32 weight;
	__u32 whole; /* 1: in the gang's last slot all ready members ran at once */
	__u16 domain;
	__u8 mode; /* enum gang_mode */
};

/* The ordinary tasks of one column. */
struct gang_others {
	__u64 vtime;
	__u64 last; /* when these tasks last had a slot, or started to wait */
	__u32 odds; /* their weight relative to all members of the column; 0: unknown, as while no
		       member is there */
	__u8 level; /* 1: members are in groups, so gang.ko cannot lower them, and they share the
		       time that is not boosted */
};

/* The state of one domain. */
struct gang_slot {
	__u64 word;    /* generation and deadline; deadline 0: no slot is open */
	__u64 opened;  /* when the present slot was opened */
	__u64 vclock;  /* virtual time of the party that was served last */
	__u64 length;  /* length of a slot, ns */
	__u64 waiting; /* columns where ordinary tasks wanted a CPU at the last slot edge */
	__u64 owed;    /* columns of these that ordinary tasks have now, before the gangs */
	__u64 wanted;  /* columns where gangs had a member to run at the last slot edge */
	__u32 gangs;   /* number of entries of list[] */
	__u32 columns; /* number of columns of the domain */
	__u16 row[2][GANG_CACHE_CPUS]; /* the gang of each column; the index is generation & 1 */
	__u16 list[GANG_DOMAIN_GANGS]; /* the gangs of the domain */
	struct gang_others others[GANG_CACHE_CPUS];
};

static inline __u64 gang_word(__u16 generation, __u64 deadline)
{
	return (deadline >> GANG_UNIT_SHIFT << 16) | generation;
}

static inline __u16 gang_word_generation(__u64 word)
{
	return word & GANG_GENERATION_MASK;
}

static inline __u64 gang_word_deadline(__u64 word)
{
	return word >> 16 << GANG_UNIT_SHIFT;
}

/* Return true if no gang is runnable: CPUs are free until a gang is. */
static inline int gang_slot_closed(__u64 word)
{
	return !gang_word_deadline(word);
}

/* Return true if the slot is over; the first CPU that sees this leads. */
static inline int gang_slot_over(__u64 word, __u64 now)
{
	return now >= gang_word_deadline(word);
}

/* Return the gang that owns @column now, or GANG_OTHERS. */
static inline __u16 gang_owner(const struct gang_slot *slot, __u64 word, __u32 column)
{
	if (gang_slot_closed(word))
		return GANG_OTHERS;
	return slot->row[word & 1][column];
}

/* Return the virtual time of @ns of CPU time at @weight. */
static inline __u64 gang_charge(__u64 ns, __u32 weight)
{
	return ns * GANG_WEIGHT_DEFAULT / (weight ? weight : GANG_WEIGHT_DEFAULT);
}

/* Note that a column of @gang used @ns of the slot that ends. */
static inline void gang_note_used(struct gang_state *gang, __u64 ns)
{
	if (ns > gang->used)
		gang->used = ns;
}

/*
 * Charge @gang for its busiest column, so that a slot costs the same at any width. The caller has
 * noted all columns of the slot.
 */
static inline void gang_pay(struct gang_state *gang)
{
	gang->vtime += gang_charge(gang->used, gang->weight);
	gang->used = 0;
}

/*
 * Return @vtime, raised so that the party keeps no more than one slot of credit from the time it
 * slept.
 */
static inline __u64 gang_capped(const struct gang_slot *slot, __u64 vtime)
{
	__u64 floor = slot->vclock > slot->length ? slot->vclock - slot->length : 0;

	return vtime < floor ? floor : vtime;
}

/*
 * Return the place of a party in the order in which parties are served: parties that starve come
 * first, the longest wait before the others, then the least virtual time. If all starving parties
 * had one rank, the first of the list would starve the last as soon as a round takes longer than
 * the bound.
 */
static inline __u64 gang_rank(__u64 vtime, __u64 last, __u64 now)
{
	return now > last && now - last > GANG_STARVE_NS ? last : vtime | GANG_FED;
}

static inline __u64 gang_bit(__u32 column)
{
	return 1ULL << column;
}

/* Read a mask once: the probes may change it at any time. */
static inline __u64 gang_mask(const __u64 *mask)
{
	return *(const volatile __u64 *)mask;
}

/* Return the columns of a row that @gang takes. */
static inline __u64 gang_needs(const struct gang_state *gang)
{
	return (gang_mask(&gang->ready) | gang_mask(&gang->seen)) & gang->columns;
}

/* Return true if @gang may join a row of which the columns @taken are gone. */
static inline int gang_fits(const struct gang_state *gang, __u32 domain, __u64 taken)
{
	return gang->mode >= GANG_MODE_RELAXED && gang->domain == domain && gang->ready &&
	       !(gang_needs(gang) & taken);
}

/* Return the gang to serve next of those that fit, or 0. Set *@rank to its rank. */
static inline __u16 gang_next(const struct gang_slot *slot, const struct gang_state *gangs,
			      __u32 domain, __u64 taken, __u64 now, __u64 *rank)
{
	__u16 best = 0;
	__u32 i;

	*rank = ~0ULL;
	for (i = 0; i < slot->gangs; i++) {
		__u16 id = slot->list[i];
		const struct gang_state *gang = &gangs[id];
		__u64 mine;

		if (!gang_fits(gang, domain, taken))
			continue;
		mine = gang_rank(gang_capped(slot, gang->vtime), gang->last_slot, now);
		if (mine < *rank) {
			*rank = mine;
			best = id;
		}
	}
	return best;
}

/* Give gang @id the columns @needs in the row of @generation. */
static inline void gang_place(struct gang_slot *slot, struct gang_state *gang, __u16 id,
			      __u64 needs, __u16 generation, __u64 now)
{
	__u32 column;

	gang->taken = needs;
	gang->seen = gang_mask(&gang->ready);
	for (column = 0; column < GANG_CACHE_CPUS; column++)
		if (gang->taken & gang_bit(column))
			slot->row[generation & 1][column] = id;
	gang->vtime = gang_capped(slot, gang->vtime);
	gang->last_slot = now;
	gang->whole = 0;
}

/*
 * Advance the clock to the party that is served first, so that no party pays for what it used while
 * the others slept. The clock does not follow a party that starved, which may be far ahead.
 */
static inline void gang_advance(struct gang_slot *slot, __u64 rank)
{
	__u64 vtime = rank & ~GANG_FED;

	if ((rank & GANG_FED) && vtime > slot->vclock)
		slot->vclock = vtime;
}

/*
 * Return the columns that gangs want. On other columns ordinary tasks have no rival and need no
 * slot.
 */
static inline __u64 gang_wanted(const struct gang_slot *slot, const struct gang_state *gangs)
{
	__u64 wanted = 0;
	__u32 i;

	for (i = 0; i < slot->gangs; i++) {
		__u16 id = slot->list[i];

		if (gangs[id].ready)
			wanted |= gang_needs(&gangs[id]);
	}
	return wanted;
}

/*
 * Note that ordinary tasks want the columns @waiting. The wait begins now on a column that they did
 * not want before, or that no gang wanted, so that they had the column to themselves.
 */
static inline void gang_note_others(struct gang_slot *slot, __u64 waiting, __u64 now)
{
	__u64 began = waiting & ~(slot->waiting & slot->wanted);
	__u64 credit = slot->length / GANG_CREDIT;
	__u64 least = slot->vclock > credit ? slot->vclock - credit : 0;
	__u32 i;

	for (i = 0; i < GANG_CACHE_CPUS; i++) {
		struct gang_others *others = &slot->others[i];

		if (!(began & gang_bit(i)))
			continue;
		others->last = now;
		if (others->vtime < least)
			others->vtime = least;
	}
	slot->waiting = waiting;
}

/*
 * Return those of @columns where ordinary tasks come before a gang of @rank. Set *@least to the
 * least rank of these tasks.
 */
static inline __u64 gang_owed(const struct gang_slot *slot, __u64 columns, __u64 rank, __u64 now,
			      __u64 *least)
{
	__u64 owed = 0;
	__u32 i;

	*least = ~0ULL;
	for (i = 0; i < GANG_CACHE_CPUS; i++) {
		const struct gang_others *others = &slot->others[i];
		__u64 mine;

		if (!(columns & gang_bit(i)))
			continue;
		mine = gang_rank(gang_capped(slot, others->vtime), others->last, now);
		if (mine > rank)
			continue;
		owed |= gang_bit(i);
		if (mine < *least)
			*least = mine;
	}
	return owed;
}

/*
 * Set the odds of @column: the weight of its ordinary tasks is to that of its members as @others to
 * @members. If @least, these odds are a lower bound.
 */
static inline void gang_set_odds(struct gang_slot *slot, __u32 column, __u32 others, __u32 members,
				 int least)
{
	__u64 odds = (__u64)others * GANG_ODDS_ONE / members;

	odds = odds > ~0U ? ~0U : odds;
	if (!least || odds > slot->others[column].odds)
		slot->others[column].odds = odds;
}

static inline __u64 gang_odds(const struct gang_slot *slot, __u32 column)
{
	return slot->others[column].odds ? slot->others[column].odds : GANG_ODDS_ONE;
}

/*
 * Return the share of @column that its ordinary tasks are due, of GANG_ODDS_ONE. On a column where
 * they wait, that is their weight beside the weight of the members there. But ordinary tasks may
 * run on any column, and so may members by default: of all CPUs of the domain, a busy task beside
 * four members on four CPUs is due four fifths of a CPU. gang.ko binds members to their columns, so
 * the function mixes the two shares, one to two: measured, such a task keeps most of what it has by
 * default, and the gang is whole for longer than it is by default.
 *
 * gang.ko cannot lower members in groups: these share by weight all time that is not boosted. So
 * that a gang is boosted at all beside a guest that is as busy, ordinary tasks are due an eighth
 * less there. A single busy task never gets its due, and where it waits the gang is not boosted.
 */
static inline __u64 gang_others_share(const struct gang_slot *slot, __u32 column)
{
	__u64 odds = gang_odds(slot, column), all = 0, here, share;
	__u32 i;

	for (i = 0; i < slot->columns; i++) {
		if (slot->wanted & gang_bit(i))
			all += GANG_ODDS_ONE;
		if (slot->waiting & gang_bit(i))
			all += gang_odds(slot, i);
	}
	here = odds * GANG_ODDS_ONE / (odds + GANG_ODDS_ONE);
	share = all ? slot->columns * odds * GANG_ODDS_ONE / all : here;
	share = (here + 2 * (share < GANG_ODDS_ONE ? share : GANG_ODDS_ONE)) / 3;
	if (slot->others[column].level)
		share = share * 7 / 8;
	return share < 1 ? 1 : share > GANG_OTHERS_MOST ? GANG_OTHERS_MOST : share;
}

/* Return the weight of all gangs that want @column. */
static inline __u32 gang_weight_on(const struct gang_slot *slot, const struct gang_state *gangs,
				   __u32 column)
{
	__u32 i, weight = 0;

	for (i = 0; i < slot->gangs; i++)
		if (gangs[slot->list[i]].ready &&
		    (gang_needs(&gangs[slot->list[i]]) & gang_bit(column)))
			weight += gangs[slot->list[i]].weight;
	return weight ? weight : GANG_WEIGHT_DEFAULT;
}

/*
 * Charge the ordinary tasks of @column for @used, and credit them with @beside, the time that
 * members used outside their slots while these tasks waited. A cap on their virtual time serves
 * them soon, whatever they had.
 */
static inline void gang_others_pay(struct gang_slot *slot, const struct gang_state *gangs,
				   __u32 column, __u64 used, __u64 beside)
{
	__u64 share = gang_others_share(slot, column), *vtime = &slot->others[column].vtime;
	__u32 weight = gang_weight_on(slot, gangs, column);
	__u64 credit = gang_charge(beside, weight);
	__u64 most = slot->vclock + GANG_OTHERS_AHEAD * slot->length;

	*vtime += gang_charge(used * (GANG_ODDS_ONE - share) / share, weight);
	*vtime = *vtime > credit ? *vtime - credit : 0;
	*vtime = *vtime < most ? *vtime : most;
}

/*
 * Return for how long, in ns, ordinary tasks may have @column until they have had as much as @gang.
 */
static inline __u64 gang_owed_ns(const struct gang_slot *slot, const struct gang_state *gangs,
				 __u32 column, __u16 gang)
{
	__u64 share = gang_others_share(slot, column), vtime = gang_capped(slot, gangs[gang].vtime);
	__u64 lag = vtime > slot->others[column].vtime ? vtime - slot->others[column].vtime : 0;

	return lag * gang_weight_on(slot, gangs, column) / GANG_WEIGHT_DEFAULT * share /
	       (GANG_ODDS_ONE - share);
}

/*
 * Return those of @columns where ordinary tasks are at most one slot ahead of @gang. No gang has a
 * column of this slot, so these tasks have their turn now, and not when the gang runs.
 */
static inline __u64 gang_owed_soon(const struct gang_slot *slot, const struct gang_state *gang,
				   __u64 columns)
{
	__u64 soon = 0;
	__u32 i;

	for (i = 0; i < GANG_CACHE_CPUS; i++)
		if ((columns & gang_bit(i)) &&
		    slot->others[i].vtime <= gang_capped(slot, gang->vtime) + slot->length)
			soon |= gang_bit(i);
	return soon;
}

/* Note what ordinary tasks have of the complete row: the columns that no gang has @taken. */
static inline void gang_place_others(struct gang_slot *slot, __u64 taken, __u64 now)
{
	__u32 i;

	for (i = 0; i < GANG_CACHE_CPUS; i++) {
		struct gang_others *others = &slot->others[i];

		/*
		 * ordinary tasks that do not wait are owed nothing: those that come had their time
		 * elsewhere
		 */
		if (!(slot->waiting & gang_bit(i)) && others->vtime < slot->vclock)
			others->vtime = slot->vclock;
		others->vtime = gang_capped(slot, others->vtime);
		if (!(taken & gang_bit(i)))
			others->last = now;
	}
}

/*
 * Fill the row of @generation; ordinary tasks want the columns @waiting. Return the gang that is
 * served first, or GANG_OTHERS if the slot goes to everything that is not a gang (or no party wants
 * it).
 */
static inline __u16 gang_fill_row(struct gang_slot *slot, struct gang_state *gangs, __u32 domain,
				  __u16 generation, __u64 waiting, __u64 now)
{
	__u64 taken = 0, owed = 0, rank;
	__u32 i, id, first = GANG_OTHERS, blocked = GANG_OTHERS;

	gang_note_others(slot, waiting, now);
	slot->wanted = gang_wanted(slot, gangs);
	for (i = 0; i < GANG_CACHE_CPUS; i++)
		slot->row[generation & 1][i] = GANG_OTHERS;
	/* each round has one gang less to look at, or fewer columns */
	for (i = 0; i < 2 * GANG_ROW_GANGS; i++) {
		__u64 before, least, needs;

		id = gang_next(slot, gangs, domain, taken | owed, now, &rank);
		if (!id)
			break;
		/* members may wake and sleep meanwhile: then the loop looks again */
		needs = gang_needs(&gangs[id]);
		if (!needs || (needs & (taken | owed)))
			continue;
		before = gang_owed(slot, needs & waiting, rank, now, &least);
		if (!taken && !owed)
			gang_advance(slot, before ? least : rank);
		if (before) {
			owed |= before;
			blocked = blocked ? blocked : id;
			continue;
		}
		if (!first)
			first = id;
		gang_place(slot, &gangs[id], id, needs, generation, now);
		taken |= gangs[id].taken;
	}
	if (owed && !taken)
		owed |= gang_owed_soon(slot, &gangs[blocked], waiting & slot->wanted);
	slot->owed = owed;
	gang_place_others(slot, taken, now);
	return first;
}

/* Return true if every member that can run is running. */
static inline int gang_all_running(const struct gang_state *gang)
{
	__u64 ready = gang_mask(&gang->ready);

	return ready && (ready & ~gang_mask(&gang->running)) == 0;
}

#endif /* GANG_MATRIX_H */
