/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_SHARE_H
#define GANG_SHARE_H

#include "types.h"

#define GANG_SHARE_ONE (1U << 20) /* all of a CPU */

u32 gang_fair_share(struct task_struct *task);
bool gang_others_there(const struct gang_column *column);
void gang_share_set(struct gang_column *column, bool settled);

#endif /* GANG_SHARE_H */
