/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_BOOST_H
#define GANG_BOOST_H

#include "types.h"

/* The caller holds column->mutex. */
bool gang_reclass(struct gang_thread *thread, enum gang_class class);
bool gang_boost(struct gang_column *column, struct gang_thread *thread);
void gang_boost_end(struct gang_column *column);
void gang_lower(struct gang_column *column);
void gang_lower_end(struct gang_column *column);
/* The caller does not hold column->mutex: the function takes it. */
void gang_unboost(struct gang_column *column, struct gang_thread *thread);

#endif /* GANG_BOOST_H */
