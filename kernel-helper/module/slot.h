/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_SLOT_H
#define GANG_SLOT_H

#include "types.h"

void gang_slot_start(struct gang_dom *dom);
void gang_slot_stop(struct gang_dom *dom);
struct gang_thread *gang_slot_owner(struct gang_column *column);
bool gang_slot_owed(const struct gang_column *column);

#endif /* GANG_SLOT_H */
