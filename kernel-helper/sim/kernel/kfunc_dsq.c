// SPDX-License-Identifier: Apache-2.0
/* A program's calls about queues, by the kernel's names: insert, move, count, look through. */
#include "kernel/dsq.h"
#include "kernel/error.h"
#include "kernel/ext.h"
#include "kernel/kfunc.h"
#include "machine/line.h"

struct bpf_iter_scx_dsq {
	struct sim_dsq *dsq;
	struct sim_task *next;
	u64 seq; /* who came later is not shown */
	u64 slice, vtime;
	u32 changes; /* which of the two are to be set */
	bool back;   /* from the last to the first */
};
_Static_assert(sizeof(struct bpf_iter_scx_dsq) <= 48, "the kernel's iterator is smaller");

s32 scx_bpf_create_dsq(u64 id, s32 node)
{
	(void)node;
	return dsq_create(sim_current, id);
}

s32 scx_bpf_dsq_nr_queued(u64 id)
{
	struct sim *sim = look();
	struct sim_dsq *dsq = id == SCX_DSQ_LOCAL ? &sim->cpus[sim->event.cpu].local : NULL;

	if (!dsq && (id & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON && (u32)id < sim->config->cpus)
		dsq = &sim->cpus[(u32)id].local;
	if (!dsq)
		dsq = id == SCX_DSQ_GLOBAL ? &sim->global : dsq_find(sim, id);
	if (dsq)
		line_touch(sim, &dsq->nr, 0);
	return dsq ? (s32)dsq->nr : -2;
}

/* scx_kf_allowed(): may the op that is being called do this? */
static int kf_allowed(struct sim *sim, u32 mask)
{
	if (sim->event.kf_mask & mask)
		return 1;
	ext_error(sim, "kfunc with mask 0x%x called from an operation only allowing 0x%x", mask,
		  sim->event.kf_mask);
	return 0;
}

/* mark_direct_dispatch(): the one verdict of select_cpu() or enqueue(), on the task in question */
static void insert_direct(struct sim *sim, struct sim_task *task, u64 id, u64 flags)
{
	struct sim_task *direct = sim->event.direct;

	if (direct->ddsp_dsq != SCX_DSQ_INVALID) {
		ext_error(sim, "%s[%d] already direct-dispatched", task->p.comm, task->p.pid);
		return;
	}
	if (direct != task) {
		ext_error(sim, "scheduling for %s[%d] but trying to direct-dispatch %s[%d]",
			  direct->p.comm, direct->p.pid, task->p.comm, task->p.pid);
		return;
	}
	task->ddsp_dsq = id;
	task->ddsp_flags = flags;
}

/* Inside select_cpu() and enqueue() it is a verdict on that task, inside dispatch() a promise. */
static void insert(struct sim *sim, struct sim_task *task, u64 id, u64 flags)
{
	if (!kf_allowed(sim, SCX_KF_ENQUEUE | SCX_KF_DISPATCH))
		return;
	if (sim->event.direct) {
		insert_direct(sim, task, id, flags);
	} else if (sim->event.buffered == SCX_DSP_DFL_MAX_BATCH) {
		ext_error(sim, "dispatch buffer overflow");
	} else {
		sim->event.buffer[sim->event.buffered] = task;
		sim->event.buffer_dsq[sim->event.buffered] = id;
		sim->event.buffer_flags[sim->event.buffered++] = flags;
	}
}

static void set_slice(struct sim_task *task, u64 slice)
{
	task->p.scx.slice = slice ? slice : task->p.scx.slice ? task->p.scx.slice : 1;
}

void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags)
{
	struct sim *sim = lock();

	set_slice(task_of(p), slice);
	insert(sim, task_of(p), id, flags);
}

void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 vtime, u64 flags)
{
	struct sim *sim = lock();

	set_slice(task_of(p), slice);
	p->scx.dsq_vtime = vtime;
	insert(sim, task_of(p), id, flags | SCX_ENQ_DSQ_PRIQ);
}

bool scx_bpf_dsq_move_to_local(u64 id)
{
	struct sim *sim = lock();
	struct sim_dsq *dsq = id == SCX_DSQ_GLOBAL ? &sim->global : dsq_find(sim, id);

	if (!kf_allowed(sim, SCX_KF_DISPATCH))
		return 0;
	if (!dsq) {
		ext_error(sim, "invalid DSQ ID 0x%016llx", id);
		return 0;
	}
	if (!dsq_consume(sim, dsq, sim->event.cpu))
		return 0;
	sim->event.moved++;
	return 1;
}

struct task_struct *scx_bpf_dsq_peek(u64 id)
{
	struct sim_dsq *dsq = dsq_find(look(), id);

	return dsq && dsq->first ? &dsq->first->p : NULL;
}

u32 scx_bpf_dispatch_nr_slots(void)
{
	return SCX_DSP_DFL_MAX_BATCH - sim_current->event.buffered;
}

u32 scx_bpf_reenqueue_local(void)
{
	struct sim *sim = lock();
	struct sim_dsq *dsq = &sim->cpus[sim->event.cpu].local;
	u32 all = dsq->nr, i;

	for (i = 0; i < all; i++)
		ext_reenqueue(sim, dsq->first);
	return all;
}

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 id, u64 flags)
{
	struct sim_dsq *dsq = dsq_find(lock(), id);

	*it = (struct bpf_iter_scx_dsq){.dsq = dsq, .back = flags & SCX_DSQ_ITER_REV};
	if (!dsq)
		return -2;
	it->next = it->back ? dsq->last : dsq->first;
	it->seq = dsq->seq;
	return 0;
}

static struct sim_task *after(const struct bpf_iter_scx_dsq *it, const struct sim_task *task)
{
	return it->back ? task->prev : task->next;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct sim_task *task = it->next;

	look();
	while (task && task->dsq == it->dsq && task->dsq_seq > it->seq)
		task = after(it, task);
	if (!task || task->dsq != it->dsq)
		return NULL;
	it->next = after(it, task);
	return &task->p;
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
	(void)it;
}

void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice)
{
	it->slice = slice;
	it->changes |= 1;
}

void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	it->vtime = vtime;
	it->changes |= 2;
}

static bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	struct sim *sim = lock();
	struct sim_task *task = task_of(p);

	/* from a timer, too */
	if (sim->event.kf_mask && !kf_allowed(sim, SCX_KF_DISPATCH))
		return 0;
	if (!it->dsq || task->dsq != it->dsq || task->dsq_seq > it->seq)
		return 0;
	if (it->changes & 1)
		p->scx.slice = it->slice;
	if (it->changes & 2)
		p->scx.dsq_vtime = it->vtime;
	it->changes = 0;
	dsq_remove(task);
	ext_insert(sim, task, id, flags, sim->event.cpu);
	sim->event.moved++;
	return 1;
}

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	return move(it, p, id, flags);
}

bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	return move(it, p, id, flags | SCX_ENQ_DSQ_PRIQ);
}
