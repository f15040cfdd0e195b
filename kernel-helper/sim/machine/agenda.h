/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_AGENDA_H
#define GANG_AGENDA_H

#include "model/sim.h"

enum agenda_kind {
	/* of a CPU */
	AGENDA_SWITCHED,
	AGENDA_KICKED,
	AGENDA_TICK,
	AGENDA_FLUSH,
	/* of a task */
	AGENDA_DONE,
	AGENDA_WOKEN,
	AGENDA_SPUN,
	/* of the scheduler */
	AGENDA_TIMER,
};

enum agenda_kind agenda_what(const struct sim *sim, u32 event, u32 *index);
u32 agenda_size(const struct sim *sim);
void agenda_timer(struct sim *sim, u32 which, u64 when);
int agenda_timer_armed(const struct sim *sim, u32 which);
void agenda_task(struct sim *sim, const struct sim_task *task, u64 when);
void agenda_wake(struct sim *sim, const struct sim_task *task, u64 when);
void agenda_spin(struct sim *sim, const struct sim_task *task, u64 when);
void agenda_flush(struct sim *sim, u32 cpu, u64 when);
void agenda_tick(struct sim *sim, u32 cpu, u64 when);
void agenda_kick(struct sim *sim, u32 cpu, u64 after);
int agenda_kicked(const struct sim *sim, u32 cpu);
void agenda_done(struct sim *sim, u32 cpu, u64 when);

#endif
