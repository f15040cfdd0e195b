/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Where an ordinary task goes when it wakes, and whose task a CPU takes before it idles.
 *
 * The work-conserving half of the scheduler: gang_core.h decides what gangs do, this
 * header what everything else does. Same rules: plain functions over plain structs, no
 * kernel call, no loop without a bound; BPF, module and user space compile the same text.
 *
 * Two masks, of idle CPUs and of overloaded ones (more runnable than the one that
 * runs), are searched by everybody and changed by every CPU that goes idle or busy.
 * One long bitmap would put 512 CPUs on one cache line, and that line would travel with
 * every change. So the masks are sparse (the idea is from Sistare's sparsemask, 2018):
 * GANG_LINE_BITS bits a cache line, the rest of the line unused.
 *
 *   line 0 |c0 c0' c1 c1' c2 c2' c3 c3'| ............ 60 bytes unused ............ |
 *   line 1 |c4 c4' ...                 |
 *   line 2 |first core of the next LLC |     an LLC begins on a line of its own
 *
 * CPUs are numbered anew for it: a place is line * 8 + bit. CPUs of a core have neighbouring
 * places and never two lines; an LLC is a run of lines. So
 *   - a core is idle when the bits of its places are all set in one word, read once. No
 *     counter of busy siblings exists that could disagree with the mask of idle CPUs;
 *   - "the same core, then the LLC, then the rest" is: a few bits of my line, the lines of my
 *     LLC beginning with mine, all other lines. Beginning with one's own line spreads the
 *     searchers.
 *
 * A waking task gets, of the CPUs it may use: its previous CPU if that is idle; a CPU of
 * an idle core of the LLC; an idle sibling of the previous CPU; any idle CPU of the LLC; on
 * the other LLCs an idle core, then any idle CPU. Whom it is given is claimed by an
 * atomic: of two that want the same CPU one goes on looking.
 *
 * A CPU about to idle asks for victims one by one, in the order above, until one lets it
 * have a task: a task may be bound to where it waits, which only the caller can see.
 *
 * The masks are hints: a bit may be a moment old. A lost claim costs another look, a
 * stale victim a failed attempt; nothing depends on them for more than speed.
 *
 * Every line looked at, every claim lost and every victim named is counted in struct
 * gang_cost, so that the price of searching can be shown next to what it brings.
 */
#ifndef GANG_SEARCH_H
#define GANG_SEARCH_H

#include "gang_core.h"

#define GANG_LINE_BITS	  8   /* of a cache line that are used */
#define GANG_SEARCH_LINES 512 /* enough for 1024 CPUs in cores of up to 8, in 64 LLCs */
#define GANG_PLACES	  (GANG_SEARCH_LINES * GANG_LINE_BITS)
#define GANG_SEARCH_LLCS  64
#define GANG_CORE_CPUS	  GANG_LINE_BITS /* hardware threads of one core */
#define GANG_NO_CPU	  0xffffffffU
#define GANG_NO_PLACE	  0xffff

/* Which CPUs a task may use; the kernel side brings its own form. */
#ifndef GANG_ALLOWED
struct gang_cpuset {
	gang_u64 bits[GANG_MAX_CPUS / 64];
};
#define GANG_CPUSET		 const struct gang_cpuset
#define GANG_ALLOWED(allow, cpu) ((allow)->bits[(cpu) / 64 & 15] >> ((cpu) & 63) & 1)
#endif

/* One cache line of a sparse mask. */
struct gang_line {
	__u32 bits;
	__u32 unused[15];
};

/* Filled once by gang_search_add(), then read by all; only the two masks change. */
struct gang_search {
	struct gang_line idle[GANG_SEARCH_LINES];
	struct gang_line overloaded[GANG_SEARCH_LINES];
	__u16 cpu[GANG_PLACES];	       /* by place; meaningless where no core covers the place */
	__u8 core[GANG_PLACES];	       /* by place: bits of its core in its line, 0: no CPU there */
	__u16 place[GANG_MAX_CPUS];    /* by CPU, plus one; 0: not added */
	__u16 first[GANG_SEARCH_LLCS]; /* line with which an LLC begins */
	__u16 past[GANG_SEARCH_LLCS];  /* line after its last */
	__u16 llc[GANG_SEARCH_LINES];  /* by line */
	__u32 used;		       /* places given out, gaps included */
	__u32 llcs;
};

/* What searching cost: only grows, one for each CPU, written by that CPU alone. */
struct gang_cost {
	__u32 lines;   /* lines looked at */
	__u32 lost;    /* claims that somebody else won */
	__u32 victims; /* CPUs named to steal from */
	__u32 found;   /* idle CPUs handed out */
};

/* Where a CPU is in its search for somebody to steal from; zeroed to begin with. */
struct gang_victims {
	__u32 step; /* 0: own core; then lines, nearest first */
	__u32 left; /* bits of the present line not named yet */
	__u32 line;
};

/* ---- who is where ------------------------------------------------------- */

static __always_inline __u32 gang_line_index(__u32 line)
{
	GANG_FORGET(line);
	return line & (GANG_SEARCH_LINES - 1);
}

static __always_inline __u32 gang_place_index(__u32 place)
{
	GANG_FORGET(place);
	return place & (GANG_PLACES - 1);
}

static __always_inline __u32 gang_llc_index(__u32 llc)
{
	GANG_FORGET(llc);
	return llc & (GANG_SEARCH_LLCS - 1);
}

static __always_inline __u32 gang_place_of(const struct gang_search *search, __u32 cpu)
{
	__u32 plus_one;

	if (cpu >= GANG_MAX_CPUS)
		return GANG_NO_PLACE;
	GANG_FORGET(cpu);
	plus_one = search->place[cpu & (GANG_MAX_CPUS - 1)];
	return plus_one ? plus_one - 1 : GANG_NO_PLACE;
}

static __always_inline __u32 gang_lines(const struct gang_search *search)
{
	return (search->used + GANG_LINE_BITS - 1) / GANG_LINE_BITS;
}

/* May the thread number @sibling of a core of @threads follow what was added last? */
static __always_inline int gang_may_follow(const struct gang_search *search, __u32 sibling,
					   __u32 threads, int new_llc)
{
	__u32 last = search->used - 1, bit = last % GANG_LINE_BITS, core;

	if (!search->used)
		return !sibling && new_llc;
	core = search->core[gang_place_index(last)];
	if (!sibling) /* the core before is complete */
		return !(core >> (bit + 1));
	return !new_llc && bit + 1 >= sibling &&
	       core == ((1U << threads) - 1) << (bit + 1 - sibling);
}

/*
 * Add the next CPU. @sibling: threads of its core added before it; @threads: of its core in all;
 * @new_llc: it is the first of its LLC. The CPUs of a core follow one another, and so do the
 * cores of an LLC. Returns 0, or -1 for arguments that make no sense or a host too large.
 * An added CPU is neither idle nor overloaded. Not to be called while others search.
 */
static __always_inline int gang_search_add(struct gang_search *search, __u32 cpu, __u32 sibling,
					   __u32 threads, int new_llc)
{
	__u32 place = search->used, bit = place % GANG_LINE_BITS, line;

	if (cpu >= GANG_MAX_CPUS || !threads || threads > GANG_CORE_CPUS || sibling >= threads ||
	    gang_place_of(search, cpu) != GANG_NO_PLACE ||
	    !gang_may_follow(search, sibling, threads, new_llc))
		return -1;
	/* an LLC begins a line, and no core has two */
	if (bit && (new_llc || (!sibling && bit + threads > GANG_LINE_BITS)))
		place += GANG_LINE_BITS - bit;
	if (place >= GANG_PLACES || (new_llc && search->llcs >= GANG_SEARCH_LLCS))
		return -1;
	line = gang_line_index(place / GANG_LINE_BITS);
	bit = place % GANG_LINE_BITS;
	if (new_llc)
		search->first[gang_llc_index(search->llcs++)] = line;
	search->past[gang_llc_index(search->llcs - 1)] = line + 1;
	search->llc[line] = search->llcs - 1;
	search->cpu[gang_place_index(place)] = cpu;
	search->core[gang_place_index(place)] = ((1U << threads) - 1) << (bit - sibling);
	search->place[cpu & (GANG_MAX_CPUS - 1)] = place + 1;
	search->used = place + 1;
	return 0;
}

/* ---- the masks ---------------------------------------------------------- */

static __always_inline __u32 gang_peek(const struct gang_line *line)
{
	return *(const volatile __u32 *)&line->bits;
}

/* Is the bit of the CPU at @place set? */
static __always_inline int gang_is_noted(const struct gang_line *mask, __u32 place)
{
	return gang_peek(&mask[gang_line_index(place / GANG_LINE_BITS)]) >>
		       (place % GANG_LINE_BITS) &
	       1;
}

/* Set or clear one CPU's bit; the line is left alone where the bit is right already. */
static __always_inline void gang_note(struct gang_line *mask, __u32 place, int on)
{
	__u32 bit = 1U << (place % GANG_LINE_BITS);
	struct gang_line *line;

	if (place == GANG_NO_PLACE || gang_is_noted(mask, place) == !!on)
		return;
	line = &mask[gang_line_index(place / GANG_LINE_BITS)];
	if (on)
		__sync_fetch_and_or(&line->bits, bit);
	else
		__sync_fetch_and_and(&line->bits, ~bit);
}

/* @cpu begins or ends to idle. */
static __always_inline void gang_note_idle(struct gang_search *search, __u32 cpu, int idle)
{
	gang_note(search->idle, gang_place_of(search, cpu), idle);
}

/* @waiting tasks could run on @cpu besides the one that does. */
static __always_inline void gang_note_waiting(struct gang_search *search, __u32 cpu, __u32 waiting)
{
	gang_note(search->overloaded, gang_place_of(search, cpu), waiting > 0);
}

/* Was @cpu noted to have tasks waiting? */
static __always_inline int gang_waits(const struct gang_search *search, __u32 cpu)
{
	__u32 place = gang_place_of(search, cpu);

	return place != GANG_NO_PLACE && gang_is_noted(search->overloaded, place);
}

/* @cpu is gone: nobody is sent there, nobody looks there for work. It comes back by noting it idle.
 */
static __always_inline void gang_note_offline(struct gang_search *search, __u32 cpu)
{
	gang_note_idle(search, cpu, 0);
	gang_note_waiting(search, cpu, 0);
}

/* Take an idle CPU for a task; 0: somebody else has it. */
static __always_inline int gang_claim(struct gang_search *search, __u32 place,
				      struct gang_cost *cost)
{
	__u32 bit = 1U << (place % GANG_LINE_BITS);
	struct gang_line *line = &search->idle[gang_line_index(place / GANG_LINE_BITS)];

	if (__sync_fetch_and_and(&line->bits, ~bit) & bit) {
		cost->found++;
		return 1;
	}
	cost->lost++;
	return 0;
}

/* ---- an idle CPU for a waking task -------------------------------------- */

/*
 * The @step-th line as seen from @home: its own, the rest of its LLC, then the other LLCs, each
 * time going round. Without a home (GANG_NO_PLACE) all lines in order.
 */
static __always_inline __u32 gang_nth_line(const struct gang_search *search, __u32 home, __u32 step)
{
	__u32 lines = gang_lines(search), line, first, past, width;

	if (home == GANG_NO_PLACE)
		return gang_line_index(step);
	line = home / GANG_LINE_BITS;
	first = search->first[gang_llc_index(search->llc[gang_line_index(line)])];
	past = search->past[gang_llc_index(search->llc[gang_line_index(line)])];
	width = past - first;
	if (!width || !lines)
		return 0;
	if (step < width)
		return gang_line_index(first + (line - first + step) % width);
	return gang_line_index((past + step - width) % lines);
}

/* Lines of the LLC of @home; 0 without one. */
static __always_inline __u32 gang_llc_lines(const struct gang_search *search, __u32 home)
{
	__u32 llc;

	if (home == GANG_NO_PLACE)
		return 0;
	llc = gang_llc_index(search->llc[gang_line_index(home / GANG_LINE_BITS)]);
	return search->past[llc] - search->first[llc];
}

/* Claim one of the CPUs @bits of @line that @allow has; @whole: only where all of its core is idle.
 */
static __always_inline __u32 gang_claim_in_line(struct gang_search *search, __u32 line, __u32 bits,
						int whole, GANG_CPUSET *allow,
						struct gang_cost *cost)
{
	__u32 bit;

	GANG_FOR(bit, GANG_LINE_BITS)
	{
		__u32 place = gang_place_index(line * GANG_LINE_BITS + bit), core, cpu;

		if (!(bits & (1U << (bit & (GANG_LINE_BITS - 1)))))
			continue;
		core = search->core[place];
		if (whole && (bits & core) != core)
			continue;
		cpu = search->cpu[place];
		if (GANG_ALLOWED(allow, cpu) && gang_claim(search, place, cost))
			return cpu;
	}
	return GANG_NO_CPU;
}

/* Look through the lines number @from to @to - 1 as seen from @home. */
static __always_inline __u32 gang_scan(struct gang_search *search, __u32 home, __u32 from, __u32 to,
				       int whole, GANG_CPUSET *allow, struct gang_cost *cost)
{
	__u32 i;

	GANG_FOR(i, to <= GANG_SEARCH_LINES ? to : GANG_SEARCH_LINES)
	{
		__u32 line, bits, cpu;

		if (i < from)
			continue;
		line = gang_nth_line(search, home, i);
		bits = gang_peek(&search->idle[gang_line_index(line)]);
		cost->lines++;
		if (!bits)
			continue;
		cpu = gang_claim_in_line(search, line, bits, whole, allow, cost);
		if (cpu != GANG_NO_CPU)
			return cpu;
	}
	return GANG_NO_CPU;
}

/* The previous CPU itself, or one of its siblings. */
static __always_inline __u32 gang_scan_core(struct gang_search *search, __u32 home, int itself,
					    GANG_CPUSET *allow, struct gang_cost *cost)
{
	__u32 line = home / GANG_LINE_BITS, bits;
	__u32 self = 1U << (home % GANG_LINE_BITS);

	bits = gang_peek(&search->idle[gang_line_index(line)]);
	bits &= itself ? self : search->core[gang_place_index(home)];
	cost->lines++;
	if (!bits)
		return GANG_NO_CPU;
	return gang_claim_in_line(search, line, bits, 0, allow, cost);
}

/* The idle CPU for a task that ran on @prev, claimed; GANG_NO_CPU when it may use none that is
 * idle. */
static __always_inline __u32 gang_find_idle(struct gang_search *search, __u32 prev,
					    GANG_CPUSET *allow, struct gang_cost *cost)
{
	__u32 home = gang_place_of(search, prev);
	__u32 near = gang_llc_lines(search, home), all = gang_lines(search), cpu;

	if (home != GANG_NO_PLACE) {
		cpu = gang_scan_core(search, home, 1, allow, cost);
		if (cpu == GANG_NO_CPU)
			cpu = gang_scan(search, home, 0, near, 1, allow, cost);
		if (cpu == GANG_NO_CPU)
			cpu = gang_scan_core(search, home, 0, allow, cost);
		if (cpu == GANG_NO_CPU)
			cpu = gang_scan(search, home, 0, near, 0, allow, cost);
		if (cpu != GANG_NO_CPU)
			return cpu;
	}
	cpu = gang_scan(search, home, near, all, 1, allow, cost);
	if (cpu == GANG_NO_CPU)
		cpu = gang_scan(search, home, near, all, 0, allow, cost);
	return cpu;
}

/* ---- somebody to steal from --------------------------------------------- */

/* Look at the line number @step: 0 is the own core, which the own line then leaves out. */
static __always_inline void gang_look(const struct gang_search *search, __u32 home, __u32 step,
				      struct gang_victims *victims, struct gang_cost *cost)
{
	__u32 own = home == GANG_NO_PLACE ? 0 : search->core[gang_place_index(home)];

	if (!step) {
		victims->line = home / GANG_LINE_BITS;
		victims->left = own & ~(1U << (home % GANG_LINE_BITS));
	} else {
		victims->line = gang_nth_line(search, home, step - 1);
		victims->left = ~0U;
		if (home != GANG_NO_PLACE && victims->line == home / GANG_LINE_BITS)
			victims->left = ~own;
	}
	victims->left &= gang_peek(&search->overloaded[gang_line_index(victims->line)]);
	cost->lines++;
}

/*
 * The next CPU from which @self may try to take a task: of its core, of its LLC, of the rest.
 * Each is named once; GANG_NO_CPU when there is no more. The step comes from the loop, not
 * from counting: a count of its own would be another state to BPF's verifier every time round.
 */
static __always_inline __u32 gang_next_victim(const struct gang_search *search, __u32 self,
					      struct gang_victims *victims, struct gang_cost *cost)
{
	__u32 home = gang_place_of(search, self), i;

	GANG_FOR(i, GANG_SEARCH_LINES + 2)
	{
		__u32 lowest = victims->left & -victims->left;

		if (lowest) {
			victims->left &= ~lowest;
			cost->victims++;
			return search->cpu[gang_place_index(victims->line * GANG_LINE_BITS +
							    gang_popcount(lowest - 1))];
		}
		if (i < victims->step || (!i && home == GANG_NO_PLACE))
			continue;
		if (i > gang_lines(search))
			break;
		victims->step = i + 1;
		gang_look(search, home, i, victims, cost);
	}
	return GANG_NO_CPU;
}

#endif /* GANG_SEARCH_H */
