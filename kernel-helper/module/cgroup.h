/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_CGROUP_H
#define GANG_CGROUP_H

#include "types.h"

struct cgroup;

/* The caller holds gang_control. */
int gang_set_cgroup(const void *owner, u32 number, u32 domain, u32 weight, struct cgroup *cgroup,
		    u32 *seated, u32 *others);

#endif /* GANG_CGROUP_H */
