/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_CONTROL_H
#define GANG_CONTROL_H

#include "types.h"

/* The caller holds gang_control. */
int gang_domain_set(const void *owner, u32 index, const struct gang_domain *cpus);
int gang_set(const void *owner, u32 number, u32 domain, u32 weight, u32 mode,
	     struct gang_seat *seats, u32 count);
int gang_drop(const void *owner, u32 number);
void gang_drop_all(const void *owner);
struct gang *gang_find(u32 number);
void gang_totals(u64 *gangs, u64 *threads);
/* The caller does not hold gang_control: the work that is cancelled takes it. */
void gang_control_flush(void);

#endif /* GANG_CONTROL_H */
