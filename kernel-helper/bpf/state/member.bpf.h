/* SPDX-License-Identifier: GPL-2.0 */
/* The gang of a task, and the sums that a gang keeps of its runnable members. */
#ifndef STATE_MEMBER_BPF_H
#define STATE_MEMBER_BPF_H

#include "state/lookup.bpf.h"

/* Return the account of @p, with the gang that @p belongs to now; NULL if there is none. */
static struct fair_task *task_of(struct task_struct *p)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	struct gang_member *member;
	u32 tid = p->pid;
	u16 had;

	if (!t || t->epoch == epoch)
		return t;
	had = t->gang;
	member = bpf_map_lookup_elem(&members, &tid);
	t->epoch = epoch;
	t->gang = 0;
	if (member && member->tgid == (u32)p->tgid && gang_of(member->gang)->mode)
		t->gang = member->gang; /* the gang is set up, and has a queue */
	if (!t->on_rq || t->delayed || had == t->gang)
		return t;
	if (had) {
		__sync_fetch_and_add(&gang_of(had)->nr_runnable, -1);
		__sync_fetch_and_add(&gang_of(had)->w, -t->w);
	}
	if (t->gang) {
		__sync_fetch_and_add(&gang_of(t->gang)->nr_runnable, 1);
		__sync_fetch_and_add(&gang_of(t->gang)->w, t->w);
	}
	return t;
}

/* Count one runnable member more (@by: 1) or less (-1) in the gang of @t. */
static void note_member(const struct fair_task *t, s32 by)
{
	struct fair_gang *g = gang_of(t->gang);

	if (!t->gang)
		return;
	__sync_fetch_and_add(&g->nr_runnable, by);
	__sync_fetch_and_add(&g->w, by < 0 ? -t->w : t->w);
}

/* Add @by to the weight of the runnable members in the gang of @t. */
static void note_member_weight(const struct fair_task *t, u64 by)
{
	if (t->gang)
		__sync_fetch_and_add(&gang_of(t->gang)->w, by);
}

/* Charge the gang of @t for @ns, at the weight of its runnable members. */
static __always_inline void note_member_had(const struct fair_task *t, u64 ns)
{
	struct fair_gang *g = gang_of(t->gang);

	if (t->gang)
		g->had += fair_virtual(ns, g->w ? g->w : t->w);
}

#endif /* STATE_MEMBER_BPF_H */
