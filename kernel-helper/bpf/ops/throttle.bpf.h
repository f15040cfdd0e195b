/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks of a group that used up its cpu.max wait in a queue of the group until the next period. No
 * clock and no group counts them meanwhile.
 */
#ifndef OPS_THROTTLE_BPF_H
#define OPS_THROTTLE_BPF_H

#include "fair/group.bpf.h"
#include "gang/deadline.bpf.h"
#include "ops/arrival.bpf.h"
#include "state/kick.bpf.h"

#define HELD_MOST (2000 * MSEC) /* the watchdog ejects us after a wait of 10 s */

/*
 * Return true if @p is throttled: it then waits in the queue of a group that used up its cpu.max.
 */
static bool throttle(struct task_struct *p, struct fair_task *t, const struct arrival *a)
{
	u32 group = throttled_by(t);

	note_throttled(t, a->now);
	t->throttled = group != 0;
	if (!group)
		return false;
	dequeue_task(t, a->now);
	note_sleep(t, a->now);
	t->since = a->now;
	scx_bpf_dsq_insert_vtime(p, throttled_queue(group), FAIR_SLICE, t->v, a->flags);
	return true;
}

/* Count @t as any other task, because it was let go, and runs now or is queued again. */
static __always_inline void catch_loose(struct fair_task *t)
{
	u32 cache = t->loose;

	if (!cache)
		return;
	t->loose = 0;
	__sync_fetch_and_add(&cache_of(cache - 1)->loose, -1);
}

/* Bring @t, which waited for a quota, near the clock of the queue in which it waits from now on. */
static void approach(struct fair_task *t, u64 now)
{
	u64 clock = clock_at(t->cache, now), v = v_of(t), to = v;
	u64 least = clock - fair_virtual(FAIR_SLICE, t->w),
	    most = clock + fair_virtual(2 * most_of(t, t->cache, 2 * turn_most_in(t->cache)), t->w);

	if (fair_after(v, most) > 0)
		to = most;
	else if (!t->bound && fair_after(v, least) < 0)
		to = least;
	t->v += to - v;
}

/*
 * Prepare @t, which was throttled on @cpu, for the queue in which it waits from now on, and return
 * its virtual deadline there. The task is loose: the first CPU that runs it counts it.
 */
GLOBAL u64 place_loose(struct fair_task *t __arg_nonnull, u32 cpu, u64 now)
{
	u32 cache = home_of(t, cpu_of(cpu)->cache);

	if (!t->on_rq) { /* the gang may have moved meanwhile, or the task waited for another CPU */
		change_clock(t, cpu, cache, now);
		approach(t, now);
	}
	t->queue = waiting_queue(t, cpu, cache);
	t->since = now;
	t->loose = cache + 1;
	__sync_fetch_and_add(&cache_of(cache)->loose, 1);
	return t->v + fair_virtual(request_of(t, cache), t->w);
}

/*
 * Let a task go that was throttled, because its group has a quota again. No runqueue is locked, so
 * the task may leave meanwhile: no clock counts it before it runs.
 */
static void unthrottle(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 now)
{
	struct fair_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	u32 cpu = scx_bpf_task_cpu(p);
	s32 idle;

	if (!t)
		return;
	note_throttled(t, now);
	t->throttled = 0;
	scx_bpf_dsq_move_set_slice(it, FAIR_SLICE);
	idle = take_idle_cpu(p);
	if (idle >= 0 && !strict_gangs && may_run(p, idle)) {
		scx_bpf_dsq_move(it, p, DSQ_LOCAL_ON | idle, 0);
		if (!push) /* before 6.18 a task that is on that CPU already does not wake it */
			scx_bpf_kick_cpu(idle, 0);
		return;
	}
	scx_bpf_dsq_move_set_vtime(it, place_loose(t, cpu, now));
	scx_bpf_dsq_move_vtime(it, p, t->queue, 0);
	cpu_of(cpu)->has = 1;
	if (t->gang)
		note_queued(t->gang);
	if (idle >= 0 && !push) /* dispatch() says whether the task may come to that core */
		scx_bpf_kick_cpu(idle, 0);
}

/*
 * Read cpu.max of group @id on a kernel that does not tell of it: the first throttled task of the
 * group shows what it is now. Such tasks run for less than a tick at a time, so that no tick may
 * ever find them.
 */
static void read_limit(u32 id)
{
	struct task_struct *p;

	if (TELLS_LIMITS)
		return;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, throttled_queue(id), 0)
	{
		read_groups(p);
		break;
	}
	bpf_rcu_read_unlock();
}

static int on_period(void *map, u32 *key, struct fair_timer *timer)
{
	struct fair_group *g = group_of(*key);
	u64 now = bpf_ktime_get_ns(), most, used;
	struct task_struct *p;

	read_limit(*key);
	used = g->used;
	if (g->quota && used) {
		most = g->quota + g->quota * (HELD_MOST / (g->period + 1));
		if (used > most)
			used = most;
		g->used = used > g->quota ? used - g->quota : 0;
		bpf_timer_start(&timer->timer, g->period, 0);
		if (g->used >= g->quota)
			return 0;
	} else {
		g->armed = 0; /* the next use of the quota starts the timer again */
	}
	/* up to 6.17 the verifier checks this as if it slept, like gang_cgroup_init() */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, throttled_queue(*key), 0) unthrottle(&___it, p, now);
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * Make the queue and the timer of group @id, unless an earlier group of this number has left them;
 * return false on failure.
 */
static bool prepare_quota(u32 id)
{
	struct fair_timer *timer = bpf_map_lookup_elem(&quota_timers, &id);
	s32 err = scx_bpf_create_dsq(throttled_queue(id), -1);

	if (!timer || (err && err != -EEXIST))
		return false;
	err = bpf_timer_init(&timer->timer, &quota_timers, CLOCK_MONOTONIC);
	if (err && err != -EBUSY)
		return false;
	bpf_timer_set_callback(&timer->timer, on_period);
	return true;
}

#endif /* OPS_THROTTLE_BPF_H */
