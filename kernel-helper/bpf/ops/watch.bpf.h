/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that wait for too long. A timer looks at each waiting task twice a second, puts it where
 * its deadline now belongs, and brings forward a task that is overdue. A light task that waits for
 * its share of a growing crowd may wait for longer than the kernel's watchdog allows, which knows
 * no weights; and a task may wait for a CPU that real time has taken.
 */
#ifndef OPS_WATCH_BPF_H
#define OPS_WATCH_BPF_H

#include "gang/deadline.bpf.h"
#include "pick/cpu.bpf.h"

#define WATCH_EVERY (500 * MSEC)
#define OVERDUE	    (4000 * MSEC) /* a task that waits for longer is brought forward */
/* a task that waits for longer on a CPU of a higher class goes to another CPU */
#define BLOCKED (200 * MSEC)

/* Return the queue of another CPU where @p may wait; @queue if there is none. */
static u64 other_queue(struct task_struct *p, const struct fair_cache *d, u64 queue)
{
	u32 i;

	bpf_for(i, 0, d->cpus) {
		u32 cpu = cpu_at(d, i);

		if (!cpu_of(cpu)->start || !allows(p, cpu))
			continue;
		queue = cpu_queue(cpu);
		break;
	}
	return queue;
}

/* A look at a queue, and where the task that is looked at belongs. */
struct look {
	u64 queue, now;
	u64 to, deadline;
	u32 cache;
};

/*
 * Weigh a waiting task again and keep it near its clock; return true if it belongs elsewhere. Its
 * runqueue is not locked, and the task may have left meanwhile: no CPU undoes what set_v() changes
 * then, but it is small. This is a function of its own, because the verifier of 6.12 follows a loop
 * until its state repeats, and that of this body does not.
 */
GLOBAL bool reweigh_waiting(struct task_struct *p __arg_trusted, struct fair_task *t __arg_nonnull,
			    struct look *at __arg_nonnull)
{
	u64 clock, most, debt, v, now = at->now, w, by = 0;
	u32 cache = at->cache;
	bool stuck;

	if (!t->on_rq || fair_after(now, t->since) < 0)
		return false;
	w = t->group ? flat_of(group_of(t->group), group_of(t->group)->share, t->counted) : t->w;
	clock_change(t->clock, {
		if (t->on_rq)
			by = reweigh_locked(clock, t, w, now);
	});
	note_weight(t, by);
	v = v_of(t);
	clock = clock_at(t->clock, now) + v - t->v; /* by the cache's clock */
	most = fair_virtual(most_of(t, cache, LAG_MOST), t->w);
	if (now - t->since > OVERDUE) {
		most = fair_virtual(request_of(t, cache), t->w);
		v = fair_after(v, clock - most) > 0 ? clock - most : v;
		t->since = now;
		count(rescued);
	}
	debt = debt_most(cache, most);
	if (fair_after(v, clock + debt) > 0)
		v = clock + debt;
	else if (fair_after(v, clock - most) < 0)
		v = clock - most;
	if (v != v_of(t))
		set_v(t, v);
	stuck = t->bound && p->nr_cpus_allowed > 1 && !cpu_of(at->queue & 0xffff)->start;
	at->to = at->queue;
	if (stuck && now - t->since > BLOCKED)
		at->to = other_queue(p, cache_of(cache), at->queue);
	at->deadline = t->v + fair_virtual(request_of(t, cache), t->w);
	return at->deadline != p->scx.dsq_vtime || at->to != at->queue;
}

/* Put each task of @queue where its deadline now belongs. */
GLOBAL int rescan_queue(u64 queue, u32 cache, u64 now)
{
	struct look at = {.queue = queue, .now = now, .cache = cache};
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(queue) <= 0)
		return 0;
	bpf_rcu_read_lock(); /* on_period() says why */
	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (!t || !reweigh_waiting(p, t, &at))
			continue;
		t->queue = at.to;
		scx_bpf_dsq_move_set_vtime(&___it, at.deadline);
		scx_bpf_dsq_move_vtime(&___it, p, at.to, 0);
		/* for a moment the queue lacked the task, and may have looked empty */
		if (t->bound)
			cpu_of(at.to & 0xffff)->has = 1;
		else if (t->gang)
			note_queued(t->gang);
	}
	bpf_rcu_read_unlock();
	return 0;
}

static int on_watch(void *map, u32 *key, struct fair_timer *timer)
{
	u32 cache = *key & (GANG_MAX_CACHES - 1), i;
	const struct fair_cache *d = cache_of(cache);
	u64 now = bpf_ktime_get_ns();

	bpf_timer_start(&timer->timer, WATCH_EVERY, 0);
	if (!waits_in(cache))
		return 0;
	if (running_in(cache) < d->cpus)
		wake_idle(cache); /* no tick wakes a CPU if all CPUs idle */
	rescan_queue(cache_queue(cache), cache, now);
	bpf_for(i, 0, d->gangs)
		rescan_queue(gang_queue(gang_at(d, i)), cache, now);
	bpf_for(i, 0, d->cpus)
		rescan_queue(cpu_queue(cpu_at(d, i)), cache, now);
	return 0;
}

#endif /* OPS_WATCH_BPF_H */
