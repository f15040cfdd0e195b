// SPDX-License-Identifier: GPL-2.0
/*
 * The kick: an interrupt to a CPU, which wakes the worker there.
 */
#include <linux/sched.h>
#include <linux/smp.h>

#include "count.h"
#include "kick.h"

/* Wake the worker: the leader's interrupt has arrived. */
static void kicked(void *data)
{
	struct gang_column *column = data;

	atomic_set(&column->kicking, 0);
	wake_up_process(column->worker);
}

/*
 * Kick the worker of @column. The caller is an interrupt, on whatever CPU leads. If a kick is under
 * way already, that kick is enough. The kernel requires of the owner of a call that no two CPUs
 * hand it over at once (kernel/smp.c), and is done with the call when kicked() runs.
 */
void gang_poke(struct gang_column *column)
{
	atomic_set(&column->poked, 1);
	gang_count(GANG_COUNT_KICKS);
	if (column->cpu == smp_processor_id()) {
		wake_up_process(column->worker);
		return;
	}
	if (atomic_xchg(&column->kicking, 1))
		return;
	if (smp_call_function_single_async(column->cpu, &column->kick)) {
		atomic_set(&column->kicking, 0);
		wake_up_process(column->worker); /* the CPU is offline, its worker is elsewhere */
	}
}

static void poke_here(struct irq_work *work)
{
	gang_poke(container_of(work, struct gang_column, poke));
}

/*
 * Kick the worker of @column once this CPU can. A CPU that holds a runqueue's lock can wake no
 * thread: its own interrupt sends the kick when the lock is free.
 */
void gang_poke_soon(struct gang_column *column)
{
	irq_work_queue(&column->poke);
}

void gang_kick_start(struct gang_column *column)
{
	INIT_CSD(&column->kick, kicked, column);
	column->poke = IRQ_WORK_INIT_HARD(poke_here);
}

static void nothing(void *data)
{
}

/*
 * Wait for a kick that is under way; no leader sends another. The function calls the CPU twice: a
 * CPU serves calls that a caller waits for before the others, so the kick may follow the first
 * call.
 */
void gang_kick_stop(struct gang_column *column)
{
	irq_work_sync(&column->poke);
	smp_call_function_single(column->cpu, nothing, NULL, 1);
	smp_call_function_single(column->cpu, nothing, NULL, 1);
}
