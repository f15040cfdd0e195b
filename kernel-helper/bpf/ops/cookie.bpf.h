/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Core scheduling: a task with a cookie shares its core with no stranger, prctl(PR_SCHED_CORE).
 *
 * A cookie beside any scheduler in BPF hangs a host that has cores of several threads (decision
 * 48). Therefore no scheduler is loaded while a task has a cookie, and no task gets a cookie while
 * a scheduler is loaded. A child has its parent's cookie: if no task has one at the load, only the
 * call makes one.
 */
#ifndef OPS_COOKIE_BPF_H
#define OPS_COOKIE_BPF_H

#include "state/stats.bpf.h"

static bool has_cookie(struct task_struct *p)
{
	return bpf_core_field_exists(p->core_cookie) && p->core_cookie;
}

/*
 * Refuse a cookie with EBUSY. The kernel's own call never fails with EBUSY: a caller that reads it
 * was refused here.
 */
SEC("fmod_ret/security_task_prctl")
int BPF_PROG(refuse_cookie, int option, unsigned long command, unsigned long pid,
	     unsigned long scope, unsigned long address, int ret)
{
	if (ret || option != PR_SCHED_CORE || command == PR_SCHED_CORE_GET)
		return ret;
	count(cookies_refused);
	return -EBUSY;
}

#endif /* OPS_COOKIE_BPF_H */
