/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_BOOST_H
#define GANG_BOOST_H

#include "types.h"

/* With column->mutex held. */
bool gang_boost(struct gang_column *column, struct gang_thread *thread);
void gang_boost_end(struct gang_column *column, struct gang_thread *thread);
bool gang_boost_kept(const struct gang_column *column);
int gang_raise(struct task_struct *task);
/* Without. */
void gang_unboost(struct gang_column *column, struct gang_thread *thread);

#endif /* GANG_BOOST_H */
