/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A guest gains by turns if its vCPUs yield to each other. Where the operator says so, the threads
 * of such a guest become a gang without a mark.
 */
#ifndef GANG_HELP_BPF_H
#define GANG_HELP_BPF_H

#include "gang/lists.bpf.h"
#include "state/member.bpf.h"

#define HELP_FIRST GANG_MAX_GANGS /* gangs without a mark have numbers from here on */
#define HELP_MOST  64

/* Set before load: unmarked guests take turns if their threads yield to each other. */
const volatile bool help;
static u64 helps; /* numbers from HELP_FIRST on that a guest has, a bit each */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HELP_MOST);
	__type(key, u32);
	__type(value, u32);
} helped SEC(".maps"); /* tgid -> gang */

/* Return a number for the gang of process @tgid in @cache; 0 if none is left. */
static u32 found_gang(u32 tgid, u32 cache)
{
	u32 i, id = 0;

	if (!hold_lists())
		return 0; /* the next yield asks again */
	bpf_for(i, 0, HELP_MOST) {
		u64 bit = 1ULL << (i & 63);

		if (__sync_fetch_and_or(&helps, bit) & bit)
			continue;
		id = HELP_FIRST + i;
		break;
	}
	if (id && bpf_map_update_elem(&helped, &tgid, &id, BPF_NOEXIST)) {
		__sync_fetch_and_and(&helps, ~(1ULL << (id - HELP_FIRST & 63)));
		id = 0; /* another CPU did this first */
	}
	if (id) {
		gang_of(id)->cache = cache;
		gang_of(id)->room = ~0ULL;
		gang_of(id)->adopted = 0;
		list_gang(cache, id);
	}
	release_lists();
	return id;
}

static void will_adopt(struct fair_task *t, u32 id)
{
	if (t->adopts)
		return;
	t->adopts = id;
	__sync_fetch_and_add(&gang_of(id)->adopted, 1);
}

/*
 * Make @a and @b, two threads of the process of @p that yield to each other, members of one gang
 * once they are queued.
 */
static void note_help(const struct task_struct *p, struct fair_task *a, struct fair_task *b)
{
	u32 tgid = p->tgid, *found = bpf_map_lookup_elem(&helped, &tgid);
	u32 id = found ? *found : 0;

	if (a->cache != b->cache || (id && gang_of(id)->cache != a->cache))
		return; /* the guest is wider than a cache */
	if (!id && cache_of(a->cache)->gangs < LIST)
		id = found_gang(tgid, a->cache);
	if (!id)
		return;
	will_adopt(a, id);
	will_adopt(b, id);
}

/*
 * Take @t, which ends or leaves, out of the gang that adopted it; the last thread takes the gang
 * with it.
 */
static void leave_help(const struct task_struct *p, struct fair_task *t)
{
	u32 id = t->adopts, tgid = p->tgid;

	if (!id)
		return;
	if (t->gang == id)
		t->gang = 0;
	t->adopts = 0;
	if (__sync_fetch_and_add(&gang_of(id)->adopted, -1) != 1)
		return;
	bpf_map_delete_elem(&helped, &tgid);
	if (!hold_lists())
		return; /* an empty gang stays listed, and its number taken */
	unlist_gang(gang_of(id)->cache, id);
	release_lists();
	__sync_fetch_and_and(&helps, ~(1ULL << (id - HELP_FIRST & 63)));
}

/* Make @t, which is queued, a member of the gang that adopts it. */
static void adopt(struct fair_task *t)
{
	if (!t->adopts || t->gang)
		return;
	t->gang = t->adopts;
	if (!t->on_rq)
		return;
	__sync_fetch_and_add(&gang_of(t->gang)->nr_runnable, 1);
	__sync_fetch_and_add(&gang_of(t->gang)->w, t->w);
}

#endif /* GANG_HELP_BPF_H */
