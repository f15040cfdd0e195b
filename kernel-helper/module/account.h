/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_ACCOUNT_H
#define GANG_ACCOUNT_H

#include "types.h"

/* The probes call these with interrupts off. */
void gang_on_cpu(struct gang_thread *thread, struct gang_column *here, u64 now);
void gang_off_cpu(struct gang_thread *thread, struct gang_column *here, bool blocked, u64 now);
void gang_woken(struct gang_thread *thread, u64 now);

void gang_look_at(struct gang_thread *thread, u64 now);

/* The caller holds the lock of the domain. */
void gang_settle(struct gang_thread *thread, u64 now);
u64 gang_collect(struct gang_column *column, u64 *ns);
void gang_note_whole(struct gang *gang, u64 now);
bool gang_row_idle(const struct gang_dom *dom);
void gang_add_thread_stats(struct gang_stats *stats, const struct gang_thread *thread);

#endif /* GANG_ACCOUNT_H */
