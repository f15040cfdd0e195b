/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_WORKER_H
#define GANG_WORKER_H

#include "types.h"

int gang_worker_start(struct gang_column *column);
void gang_worker_stop(struct gang_column *column);

#endif /* GANG_WORKER_H */
