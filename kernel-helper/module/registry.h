/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_REGISTRY_H
#define GANG_REGISTRY_H

#include "types.h"

void gang_thread_add(struct gang_thread *thread);
void gang_thread_del(struct gang_thread *thread);
/* The caller has interrupts off or holds rcu_read_lock(). */
struct gang_thread *gang_thread_of(struct task_struct *task);
void gang_column_here(unsigned int cpu, struct gang_column *column);
struct gang_column *gang_column_of(unsigned int cpu);

#endif /* GANG_REGISTRY_H */
