/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The scheduling decisions of gangd: which gangs fill the next slot, when a slot
 * is over, how a gang is charged, who leads.
 *
 * Plain functions over plain structs: no kernel call, no float, no loop without
 * a bound. The same header is compiled into the BPF scheduler and into a
 * user-space library for tests; whoever includes it provides nothing but the
 * fixed-width types.
 *
 * The picture is Ousterhout's matrix (1982). A gang domain has up to 64 CPUs,
 * its columns. A slot is one row: gangs whose columns are disjoint share it.
 *
 *              col 0   col 1   col 2   col 3
 *   slot n      A       A       B       B
 *   slot n+1    C       C       C       C
 *   slot n+2    (others: everything that is not a gang)
 *
 * A strict gang has whole cores: the columns beside its members, on the same cores,
 * are its own too and stay idle where it has nobody to run there.
 *
 * Rows are not fixed. At every slot edge the leader picks the gang with the
 * least virtual time among those with a runnable member, then fills the columns
 * that gang leaves free with the next in virtual-time order. A gang takes the
 * columns where it had something to run since its last slot, no others; a member
 * that wakes amid the slot joins it where its column is free. "Others" compete
 * column by column: the ordinary tasks of each have a virtual time of their own, by
 * their own weights. A column that is owed to them goes to them, and gangs that
 * need it wait.
 *
 * The state of a slot, (generation, deadline), is one 64-bit word, stored once
 * the row is complete: a CPU that reads the word sees the whole row or the whole
 * row before it, never half of one. Rows alternate between two buffers, picked by
 * the lowest bit of the generation, so the row before stays intact meanwhile.
 *
 *     63                               16 15            0
 *     +----------------------------------+---------------+
 *     | deadline, units of 1024 ns       | generation    |
 *     +----------------------------------+---------------+
 *
 * What goes wrong, and what is done about it:
 *   - idle credit: a gang that slept could claim the host for as long as it
 *     slept. Its virtual time is raised to at most one slot behind the clock.
 *   - starvation: weights of 1 : 10000 would starve a gang past the kernel's
 *     watchdog. A party that waited longer than GANG_STARVE_NS goes first.
 *   - bandwidth (cpu.max): a gang that used more than its rate waits until it is paid
 *     for. A slot is not cut short for it: the debt is.
 *   - halted members: a gang pays for what its busiest column used of its slot. Were
 *     it the mean of all, a gang of eight with one busy member would have that
 *     column for eight ninths of the time, against one that needs all eight. What a
 *     filler uses is free: were its gang charged, filling for another gang would
 *     cost it the slots in which its members run together, and it would only ever
 *     run one at a time. A strict gang lets nobody fill in, so it pays for its slot
 *     by the clock.
 *   - members that take turns: of a guest whose vCPUs wake each other and then halt, one
 *     is runnable at a time. Co-scheduling has nothing to give it, and sending fillers
 *     away for it costs two switches a turn. Such a gang waits for a filler of its like.
 *     It shows in the members' own stints: those of a member that only wakes
 *     for a moment while a sibling works go by entirely beside that sibling.
 */
#ifndef GANG_CORE_H
#define GANG_CORE_H

#include "gang_abi.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* BPF needs its own loop form to have a loop verified once instead of unrolled. */
#ifndef GANG_FOR
#define GANG_FOR(i, n) for ((i) = 0; (i) < (n); (i)++)
#endif

/*
 * BPF's verifier forgets the bounds of a value that the compiler keeps on the stack, and the
 * compiler drops a mask it can prove to be needless. What it cannot see through, it masks.
 */
#ifndef GANG_FORGET
#define GANG_FORGET(x)
#endif

typedef __u64 gang_u64;

#define GANG_OTHERS	     0	 /* the party of everything that is not a gang */
#define GANG_DOMAIN_GANGS    256 /* gangs one domain can hold, at any time in its life */
#define GANG_ROW_GANGS	     16	 /* gangs that can share one slot */
#define GANG_STARVE_NS	     2000000000ULL
#define GANG_BURST_NS	     100000000ULL /* unused bandwidth is kept for so long */
#define GANG_FILLER_NS	     1000000ULL	  /* a filler's slice where the owner waits for it */
#define GANG_SERIAL_MAX	     32
#define GANG_FED	     (1ULL << 63) /* in a rank: the party does not starve */
#define GANG_UNIT_SHIFT	     10
#define GANG_GENERATION_MASK 0xffffULL

/* What the core knows of one gang. */
struct gang_state {
	gang_u64 columns; /* where it has members */
	gang_u64 crowded; /* where it has several */
	gang_u64 cores;	  /* those and the columns beside them, on the same cores */
	gang_u64 taken;	  /* what it has of the row it was in last */
	gang_u64 ready;	  /* columns whose member is runnable */
	gang_u64 seen;	  /* columns whose member was runnable at some time since its last slot */
	gang_u64 running; /* columns whose member is on CPU; part of ready */
	gang_u64 used;	  /* what its busiest column used of the slot that ends, ns */
	gang_u64 vtime;
	gang_u64 filled;    /* virtual time of its fillers, which costs it none of its slots */
	gang_u64 last_slot; /* when it last had a slot, or became ready */
	gang_u64 paid;	    /* the CPU time it used is paid for until then, if it has a rate */
	gang_u64 changed;   /* when `ready` last changed */
	gang_u64 together;  /* for how long, in all, several members were runnable at once */
	__u32 weight;
	__u32 rate; /* CPU ns it may use in 1024 ns, all members together; 0: no limit */
	__u16 domain;
	__u16 generation; /* of the last slot it was in */
	__u32 costarted;  /* in its last slot all ready members were running at once */
	__u16 futile;	  /* generation of a slot in which it spun as a filler */
	__u8 mode;	  /* enum gang_mode */
	__u8 serial;	  /* how surely its members take turns, 0 to GANG_SERIAL_MAX */
};

/* The ordinary tasks of one column. */
struct gang_others {
	gang_u64 vtime;
	gang_u64 last; /* when they last had a slot, or started waiting */
};

/* What the core knows of one gang domain. */
struct gang_slot {
	gang_u64 word;	       /* deadline 0: no slot is open */
	gang_u64 opened;       /* when the present slot was opened */
	gang_u64 vclock;       /* virtual time of the party last served */
	gang_u64 filler_clock; /* `filled` of the gang last taken a filler from */
	gang_u64 length;       /* of a slot, ns */
	gang_u64 waiting;      /* columns where ordinary tasks wanted a CPU at the last slot edge */
	gang_u64 owed;	       /* of those, the ones whose turn it is now, before the gangs' */
	gang_u64 wanted;       /* columns where gangs had something to run at the last slot edge */
	__u32 leading;	       /* 1 while a CPU is building the next row */
	__u32 columns;	       /* CPUs of the domain */
	__u32 gangs;	       /* entries of list[] */
	__u32 strict;	       /* 1 while a gang of this domain is strict */
	__u16 row[2][GANG_DOMAIN_CPUS];	 /* gang by column, by generation & 1 */
	__u16 list[GANG_DOMAIN_GANGS];	 /* every gang this domain ever held */
	gang_u64 core[GANG_DOMAIN_CPUS]; /* columns on the same core, by column */
	struct gang_others others[GANG_DOMAIN_CPUS];
};

static __always_inline gang_u64 gang_word(__u16 generation, gang_u64 deadline)
{
	return (deadline >> GANG_UNIT_SHIFT << 16) | generation;
}

static __always_inline __u16 gang_word_generation(gang_u64 word)
{
	return word & GANG_GENERATION_MASK;
}

static __always_inline gang_u64 gang_word_deadline(gang_u64 word)
{
	return word >> 16 << GANG_UNIT_SHIFT;
}

/* No gang is runnable: CPUs are free until one is. */
static __always_inline int gang_slot_closed(gang_u64 word)
{
	return !gang_word_deadline(word);
}

/* The first CPU that sees its slot over leads. */
static __always_inline int gang_slot_over(gang_u64 word, gang_u64 now)
{
	return now >= gang_word_deadline(word);
}

static __always_inline gang_u64 gang_slot_left(gang_u64 word, gang_u64 now)
{
	gang_u64 deadline = gang_word_deadline(word);

	return deadline > now ? deadline - now : 0;
}

/* Which gang owns @column now; GANG_OTHERS where none does. */
static __always_inline __u16 gang_owner(const struct gang_slot *slot, gang_u64 word, __u32 column)
{
	if (gang_slot_closed(word))
		return GANG_OTHERS;
	return slot->row[word & 1][column & (GANG_DOMAIN_CPUS - 1)];
}

/* Virtual time of @ns of CPU at @weight. */
static __always_inline gang_u64 gang_charge(gang_u64 ns, __u32 weight)
{
	return ns * GANG_WEIGHT_DEFAULT / (weight ? weight : GANG_WEIGHT_DEFAULT);
}

static __always_inline __u32 gang_popcount(gang_u64 mask)
{
	mask -= (mask >> 1) & 0x5555555555555555ULL;
	mask = (mask & 0x3333333333333333ULL) + ((mask >> 2) & 0x3333333333333333ULL);
	mask = (mask + (mask >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (mask * 0x0101010101010101ULL) >> 56;
}

static __always_inline int gang_is_strict(const struct gang_state *gang)
{
	return gang->mode == GANG_MODE_STRICT;
}

/* How far @ns of a filler move gang_state.filled: the mean of what its members used. */
static __always_inline gang_u64 gang_filler_charge(const struct gang_state *gang, gang_u64 ns)
{
	__u32 members = gang_popcount(gang->columns);

	return gang_charge(ns, gang->weight) / (members ? members : 1);
}

/* One of the columns of @gang used @ns of the slot that ends, which lasted @elapsed. */
static __always_inline void gang_note_used(struct gang_state *gang, gang_u64 ns, gang_u64 elapsed)
{
	if (gang_is_strict(gang))
		ns = elapsed;
	if (ns > gang->used)
		gang->used = ns;
}

/* All columns of the slot are noted: @gang pays for the busiest, so a slot costs the same at any
 * width. */
static __always_inline void gang_pay(struct gang_state *gang)
{
	gang->vtime += gang_charge(gang->used, gang->weight);
	gang->used = 0;
}

/* How far @ns of CPU move gang_state.paid. */
static __always_inline gang_u64 gang_payment(const struct gang_state *gang, gang_u64 ns)
{
	return gang->rate ? (ns << 10) / gang->rate : 0;
}

/* Has the gang bandwidth left? */
static __always_inline int gang_may_run(const struct gang_state *gang, gang_u64 now)
{
	return !gang->rate || gang->paid <= now;
}

/* No party keeps more than one slot of credit, by @clock, from the time it slept. */
static __always_inline gang_u64 gang_credited(const struct gang_slot *slot, gang_u64 vtime,
					      gang_u64 clock)
{
	gang_u64 floor = clock > slot->length ? clock - slot->length : 0;

	return vtime < floor ? floor : vtime;
}

static __always_inline gang_u64 gang_capped(const struct gang_slot *slot, gang_u64 vtime)
{
	return gang_credited(slot, vtime, slot->vclock);
}

/* The order in which gangs give fillers, least first. */
static __always_inline gang_u64 gang_filled(const struct gang_slot *slot,
					    const struct gang_state *gang)
{
	return gang_credited(slot, gang->filled, slot->filler_clock);
}

/* @gang gives the next filler. */
static __always_inline void gang_fill(struct gang_slot *slot, struct gang_state *gang)
{
	gang->filled = gang_filled(slot, gang);
	if (gang->filled > slot->filler_clock)
		slot->filler_clock = gang->filled;
}

/*
 * The order in which parties are served: those that starve, longest first, then
 * least virtual time. Were all who starve alike, the first of the list would starve
 * the last as soon as a round takes longer than the bound.
 */
static __always_inline gang_u64 gang_rank(gang_u64 vtime, gang_u64 last, gang_u64 now)
{
	return now > last && now - last > GANG_STARVE_NS ? last : vtime | GANG_FED;
}

static __always_inline gang_u64 gang_bit(__u32 column)
{
	return 1ULL << (column & (GANG_DOMAIN_CPUS - 1));
}

/* The columns of a row that @gang takes: a strict one whole cores, and where it sleeps, too. */
static __always_inline gang_u64 gang_needs(const struct gang_state *gang)
{
	return gang_is_strict(gang) ? gang->cores : (gang->ready | gang->seen) & gang->columns;
}

/* May @gang join a row whose columns @taken are gone? */
static __always_inline int gang_fits(const struct gang_state *gang, __u32 domain, gang_u64 taken,
				     gang_u64 now)
{
	return gang->mode >= GANG_MODE_RELAXED && gang->domain == domain && gang->ready &&
	       !(gang_needs(gang) & taken) && gang_may_run(gang, now);
}

/* @columns, and those on the same cores. */
static __always_inline gang_u64 gang_cores(const struct gang_slot *slot, gang_u64 columns)
{
	gang_u64 cores = columns;
	__u32 i;

	GANG_FOR(i, GANG_DOMAIN_CPUS)
	if (columns & gang_bit(i))
		cores |= slot->core[i & (GANG_DOMAIN_CPUS - 1)];
	return cores;
}

/* Make @gang what it is asked to be; its members, virtual time and history stay. */
static __always_inline void gang_set_up(const struct gang_slot *slot, struct gang_state *gang,
					const struct gang_args *args)
{
	gang->columns = args->columns;
	gang->crowded = args->crowded;
	gang->cores = gang_cores(slot, args->columns);
	gang->weight = args->weight;
	gang->domain = args->domain;
	gang->mode = args->mode;
}

/* May tasks of the parties @a and @b be on the CPUs of one core at once? */
static __always_inline int gang_may_share(const struct gang_state *a, const struct gang_state *b)
{
	return a == b || !(gang_is_strict(a) || gang_is_strict(b));
}

/* The gang to be served next among those that fit, 0 when there is none; @rank is its rank. */
static __always_inline __u16 gang_next(const struct gang_slot *slot, const struct gang_state *gangs,
				       __u32 domain, gang_u64 taken, gang_u64 now, gang_u64 *rank)
{
	__u16 best = 0;
	__u32 i;

	*rank = ~0ULL;
	GANG_FOR(i, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1))
	{
		__u16 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)] & (GANG_MAX_GANGS - 1);
		const struct gang_state *gang = &gangs[id];
		gang_u64 mine;

		if (!gang_fits(gang, domain, taken, now))
			continue;
		mine = gang_rank(gang_capped(slot, gang->vtime), gang->last_slot, now);
		if (mine < *rank) {
			*rank = mine;
			best = id;
		}
	}
	return best;
}

static __always_inline __u32 gang_index(__u32 id)
{
	GANG_FORGET(id);
	return id & (GANG_MAX_GANGS - 1);
}

/* Give @id its columns in the row of @generation. */
static __always_inline void gang_place(struct gang_slot *slot, struct gang_state *gang, __u16 id,
				       __u16 generation, gang_u64 now)
{
	__u32 column;

	gang->taken = gang_needs(gang);
	gang->seen = gang->ready;
	GANG_FOR(column, GANG_DOMAIN_CPUS)
	if (gang->taken & gang_bit(column))
		slot->row[generation & 1][column & (GANG_DOMAIN_CPUS - 1)] = id;
	gang->vtime = gang_capped(slot, gang->vtime);
	if (now > GANG_BURST_NS && gang->paid < now - GANG_BURST_NS)
		gang->paid = now - GANG_BURST_NS;
	gang->last_slot = now;
	gang->generation = generation;
	gang->costarted = 0;
}

/*
 * The clock follows the party that is served first, so that nobody pays for what it used
 * while the others slept. Not when it was served for starving: it may be far ahead.
 */
static __always_inline void gang_advance(struct gang_slot *slot, gang_u64 rank)
{
	gang_u64 vtime = rank & ~GANG_FED;

	if ((rank & GANG_FED) && vtime > slot->vclock)
		slot->vclock = vtime;
}

/*
 * A member of @id wakes on @column amid its slot, and no ordinary task wants that: it joins if
 * nobody has the column. Of two gangs at once one has it, and the other's member waits.
 */
static __always_inline int gang_join(struct gang_slot *slot, struct gang_state *gang, __u16 id,
				     gang_u64 word, __u32 column)
{
	__u16 *owner = &slot->row[word & 1][column & (GANG_DOMAIN_CPUS - 1)];

	if (gang_slot_closed(word) || gang->generation != gang_word_generation(word) || *owner ||
	    !(gang->columns & gang_bit(column)))
		return 0;
	*owner = id;
	return 1;
}

/* The columns that gangs want. Elsewhere ordinary tasks have no rival, and need no slot. */
static __always_inline gang_u64 gang_wanted(const struct gang_slot *slot,
					    const struct gang_state *gangs)
{
	gang_u64 wanted = 0;
	__u32 i;

	GANG_FOR(i, slot->gangs & (2 * GANG_DOMAIN_GANGS - 1))
	{
		__u16 id = slot->list[i & (GANG_DOMAIN_GANGS - 1)] & (GANG_MAX_GANGS - 1);

		if (gangs[id].ready)
			wanted |= gang_needs(&gangs[id]);
	}
	return wanted;
}

/*
 * What the ordinary tasks of @column pay for @ns, where those that want it weigh @weight together;
 * nothing where no gang wants it.
 */
static __always_inline gang_u64 gang_others_charge(const struct gang_slot *slot, __u32 column,
						   gang_u64 ns, __u32 weight)
{
	return slot->wanted & gang_bit(column) ? gang_charge(ns, weight) : 0;
}

/*
 * Ordinary tasks want the columns @waiting. Where they did not before, or where no gang did and
 * they had the column to themselves, they have not waited until now.
 */
static __always_inline void gang_note_others(struct gang_slot *slot, gang_u64 waiting, gang_u64 now)
{
	gang_u64 began = waiting & ~(slot->waiting & slot->wanted);
	__u32 i;

	GANG_FOR(i, GANG_DOMAIN_CPUS)
	{
		struct gang_others *others = &slot->others[i & (GANG_DOMAIN_CPUS - 1)];

		if (!(began & gang_bit(i)))
			continue;
		others->last = now;
		if (!(slot->wanted & gang_bit(i)) && others->vtime < slot->vclock)
			others->vtime = slot->vclock;
	}
	slot->waiting = waiting;
}

/* Of @columns those whose ordinary tasks come before a gang of @rank; @least is their least rank.
 */
static __always_inline gang_u64 gang_owed(const struct gang_slot *slot, gang_u64 columns,
					  gang_u64 rank, gang_u64 now, gang_u64 *least)
{
	gang_u64 owed = 0;
	__u32 i;

	*least = ~0ULL;
	GANG_FOR(i, GANG_DOMAIN_CPUS)
	{
		const struct gang_others *others = &slot->others[i & (GANG_DOMAIN_CPUS - 1)];
		gang_u64 mine;

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

/* The row is complete: ordinary tasks have what no gang @taken has. */
static __always_inline void gang_place_others(struct gang_slot *slot, gang_u64 taken, gang_u64 now)
{
	__u32 i;

	GANG_FOR(i, GANG_DOMAIN_CPUS)
	{
		struct gang_others *others = &slot->others[i & (GANG_DOMAIN_CPUS - 1)];

		others->vtime = gang_capped(slot, others->vtime);
		if (!(taken & gang_bit(i)))
			others->last = now;
	}
}

/*
 * Fill the row of @generation; ordinary tasks want the columns @waiting. Returns the gang served
 * first, GANG_OTHERS when the slot goes to everything that is not a gang (or nobody wants it).
 */
static __always_inline __u16 gang_fill_row(struct gang_slot *slot, struct gang_state *gangs,
					   __u32 domain, __u16 generation, gang_u64 waiting,
					   gang_u64 now)
{
	gang_u64 taken = 0, owed = 0, rank;
	__u32 i, id, first = GANG_OTHERS;

	gang_note_others(slot, waiting, now);
	slot->wanted = gang_wanted(slot, gangs);
	GANG_FOR(i, GANG_DOMAIN_CPUS)
	slot->row[generation & 1][i & (GANG_DOMAIN_CPUS - 1)] = GANG_OTHERS;
	/* each round has one gang less to look at, or some columns */
	GANG_FOR(i, 2 * GANG_ROW_GANGS)
	{
		gang_u64 before, least;

		id = gang_index(gang_next(slot, gangs, domain, taken | owed, now, &rank));
		if (!id)
			break;
		before = gang_owed(slot, gang_needs(&gangs[id]) & waiting, rank, now, &least);
		if (!taken && !owed)
			gang_advance(slot, before ? least : rank);
		if (before) {
			owed |= before;
			continue;
		}
		if (!first)
			first = id;
		gang_place(slot, &gangs[id], id, generation, now);
		taken |= gangs[id].taken;
	}
	slot->owed = owed;
	gang_place_others(slot, taken, now);
	return first;
}

/*
 * Does a CPU have to be interrupted for the row? Where an owner waits that is not running, and
 * where somebody @foreign runs on a column of a strict owner, who may have nobody to run there.
 */
static __always_inline int gang_out_of_place(const struct gang_state *owner, __u32 column,
					     int foreign)
{
	gang_u64 bit = gang_bit(column);

	if (foreign && gang_is_strict(owner))
		return 1;
	return (owner->ready & bit) && !(owner->running & bit);
}

/* The members of @gang that are runnable change at @now: before the change. */
static __always_inline void gang_note_change(struct gang_state *gang, gang_u64 now)
{
	gang_u64 since = *(volatile gang_u64 *)&gang->changed;

	/* of two CPUs at once one accounts for the time that passed */
	if (now <= since || __sync_val_compare_and_swap(&gang->changed, since, now) != since)
		return;
	if (gang->ready & (gang->ready - 1))
		__sync_fetch_and_add(&gang->together, now - since);
}

/*
 * A member blocks that was runnable for @ns, and for @beside of them a sibling was, too. Less than
 * three quarters is a sign of taking turns.
 */
static __always_inline void gang_note_stint(struct gang_state *gang, gang_u64 ns, gang_u64 beside)
{
	if (beside >= ns - ns / 4)
		gang->serial -= gang->serial > 0;
	else
		gang->serial += gang->serial < GANG_SERIAL_MAX;
}

/* Do the members of @gang take turns? */
static __always_inline int gang_is_serial(const struct gang_state *gang)
{
	return gang->serial >= GANG_SERIAL_MAX / 2 && !gang_is_strict(gang);
}

/*
 * Does a woken member of @gang wait until the @filler on its column has had a slice? Of its like,
 * who is soon to halt, and not of one that may spin for a sibling all the time it is given.
 */
static __always_inline int gang_waits_for(const struct gang_state *gang,
					  const struct gang_state *filler)
{
	return gang_is_serial(gang) && gang_is_serial(filler);
}

/*
 * Is the slot of @gang of use to it at @now? Between two turns, too: a member that has woken its
 * sibling may halt before the other CPU knows of the wakeup.
 */
static __always_inline int gang_wants_slot(const struct gang_state *gang, gang_u64 now)
{
	return gang->ready || (gang_is_serial(gang) && now < gang->changed + GANG_FILLER_NS);
}

/* The bucket of a histogram for @ns: the least b with @ns below 2^b microseconds. */
static __always_inline __u32 gang_bucket(gang_u64 ns)
{
	gang_u64 us = ns / 1000;
	__u32 bucket = 0, step;

	for (step = 16; step; step /= 2) {
		if (us >> step) {
			us >>= step;
			bucket += step;
		}
	}
	bucket += us ? 1 : 0;
	return bucket < GANG_BUCKETS ? bucket : GANG_BUCKETS - 1;
}

/* Every member that can run is running. */
static __always_inline int gang_all_running(const struct gang_state *gang)
{
	return gang->ready && (gang->ready & ~gang->running) == 0;
}

#endif /* GANG_CORE_H */
