/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_DOMAIN_H
#define GANG_DOMAIN_H

#include "types.h"

/* The caller holds gang_control. */
struct gang_dom *gang_domain_find(u32 index);
bool gang_domain_owned(u32 index, const void *owner);
bool gang_domain_usable(const struct gang_domain *cpus, const struct gang_dom *old);
bool gang_domain_same(const struct gang_dom *dom, const struct gang_domain *cpus);
void gang_domain_tune(struct gang_dom *dom, u32 slot_us);
int gang_domain_make(const void *owner, u32 index, const struct gang_domain *cpus);
void gang_domain_free(u32 index);

#endif /* GANG_DOMAIN_H */
