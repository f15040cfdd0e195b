/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_YIELD_H
#define GANG_YIELD_H

#include "types.h"

u64 gang_way_set(struct gang_column *column);
/* The caller of the next four holds the lock of the column's runqueue. */
void gang_bound_woken(struct gang_column *column);
void gang_bound_runs(struct gang_column *column);
void gang_bound_sleeps(struct gang_column *column);
void gang_lowered_runs(struct gang_column *column);
void gang_forked(struct gang_thread *parent, struct task_struct *child);
void gang_forks_flush(void);

#endif /* GANG_YIELD_H */
