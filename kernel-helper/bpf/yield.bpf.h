/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sched_yield(), and KVM's directed yields: a vCPU that spins (pause-loop exits) names a sibling
 * that may hold what it waits for. The sibling runs next on the spinner's CPU if it is owed that,
 * or not far ahead of it: directed yields move time between siblings, they make none. A member of a
 * gang does so with the spinner's virtual time, and the spinner waits with the sibling's: else one
 * that never spins would get ahead of one that does, and be left out of their turns.
 *
 * Guests that yield to each other would gain by turns. Where the operator says so their threads
 * become a gang without being marked.
 */
#ifndef YIELD_BPF_H
#define YIELD_BPF_H

#include "balance.bpf.h"

#define YIELD_AHEAD (10 * MSEC)
#define HELP_FIRST  GANG_MAX_GANGS /* gangs that nobody marked have numbers from here on */
#define HELP_MOST   64

/* Set before load: unmarked guests whose threads yield to each other take turns. */
const volatile bool help;
static u64 helps; /* numbers from HELP_FIRST on that a guest has, a bit each */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HELP_MOST);
	__type(key, u32);
	__type(value, u32);
} helped SEC(".maps"); /* tgid -> gang */

/* A number for the gang of process @tgid in @domain; 0: none is left. */
static u32 found_gang(u32 tgid, u32 domain)
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
		id = 0; /* another CPU did it first */
	}
	if (id) {
		gang_of(id)->domain = domain;
		gang_of(id)->room = ~0ULL;
		gang_of(id)->adopted = 0;
		list_gang(domain, id);
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

/* Two threads of a process that yield to each other will be members of a gang. */
static void note_help(const struct task_struct *p, struct fair_task *a, struct fair_task *b)
{
	u32 tgid = p->tgid, *found = bpf_map_lookup_elem(&helped, &tgid);
	u32 id = found ? *found : 0;

	if (a->domain != b->domain || (id && gang_of(id)->domain != a->domain))
		return; /* wider than a cache */
	if (!id && domain_of(a->domain)->gangs < LIST)
		id = found_gang(tgid, a->domain);
	if (!id)
		return;
	will_adopt(a, id);
	will_adopt(b, id);
}

/* A thread that was adopted goes; the last one takes the gang with it. */
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
	unlist_gang(gang_of(id)->domain, id);
	release_lists();
	__sync_fetch_and_and(&helps, ~(1ULL << (id - HELP_FIRST & 63)));
}

/* A task that is queued becomes a member of the gang that adopts it. */
static void adopt(struct fair_task *t)
{
	if (!t->adopts || t->gang)
		return;
	t->gang = t->adopts;
	if (!t->on)
		return;
	__sync_fetch_and_add(&gang_of(t->gang)->on, 1);
	__sync_fetch_and_add(&gang_of(t->gang)->w, t->w);
}

/* Run the sibling that a directed yield named, and no other. */
static bool take_buddy(struct choice *best)
{
	struct fair_cpu *self = cpu_of(best->cpu);

	best->queue = self->buddy_queue;
	best->pid = self->buddy;
	self->buddy = 0;
	if (may_send(best->cpu, self->buddy_gang, best->now)) {
		if (take(best)) {
			count(yields_hit);
			count_of(self->buddy_gang, yields_hit, 1);
			return true;
		}
		unsend(best->cpu);
	}
	best->queue = best->pid = 0;
	return false;
}

/* A task that is owed its CPU and yields it forgoes one request, as in EEVDF since 6.18. */
static void skip_request(struct task_struct *p, struct fair_task *t)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct fair_cpu *self = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns();

	set_slice(p, 0);
	if (!t || !self->start)
		return;
	charge(cpu, t, now);
	if (fair_after(v_of(t), clock_at(t->domain, now)) > 0)
		return;
	set_v(t, v_of(t) + fair_virtual(request_of(t, t->domain), t->w));
	self->v = v_of(t);
}

/* True if @t and @o are members of a gang whose virtual times are in the same coin. */
static bool are_even(const struct fair_task *t, const struct fair_task *o)
{
	return t->gang && t->gang == o->gang && t->domain == o->domain && t->w == o->w;
}

/* @t, which is behind @o and runs on @self, takes its virtual time and waits. */
static void exchange(struct fair_cpu *self, struct fair_task *t, struct fair_task *o)
{
	u64 v = v_of(t);

	set_v(t, v_of(o));
	set_v(o, v);
	self->v = v_of(t);
}

static bool yield_to(struct task_struct *from, struct fair_task *t, struct task_struct *to)
{
	u32 cpu = scx_bpf_task_cpu(from);
	struct fair_cpu *self = cpu_of(cpu);
	/* it waits: what gang it is of it learns when it leaves the queue */
	struct fair_task *o = bpf_task_storage_get(&tasks, to, 0, 0);
	u64 now = bpf_ktime_get_ns();
	bool swaps = false;
	s64 ahead;

	count(yields);
	if (t)
		count_of(t->gang, yields, 1);
	if (!t || !o || !o->on || o->delayed || o->throttled || !o->queue ||
	    cpu_of(scx_bpf_task_cpu(to))->pid == (u32)to->pid)
		return false;
	if (help && from->tgid == to->tgid && !(t->gang && o->gang))
		note_help(from, t, o);
	if (are_even(t, o)) {
		if (self->start)
			charge(cpu, t, now);
		swaps = fair_after(v_of(o), v_of(t)) > 0;
	}
	ahead = fair_after(v_of(swaps ? t : o), clock_at(o->domain, now));
	if (ahead > (s64)fair_virtual(YIELD_AHEAD, o->w))
		return false;
	if (swaps)
		exchange(self, t, o);
	self->buddy_owed = ahead <= 0;
	self->buddy = to->pid;
	self->buddy_queue = o->queue;
	self->buddy_gang = t->gang;
	set_slice(from, 0);
	return true;
}

#endif /* YIELD_BPF_H */
