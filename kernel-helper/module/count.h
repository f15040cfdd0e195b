/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_COUNT_H
#define GANG_COUNT_H

#include <linux/types.h>

/* The members of struct gang_ioc_counters that gang.ko counts, from any context. */
enum gang_count {
	GANG_COUNT_SLOTS,
	GANG_COUNT_OTHER_SLOTS,
	GANG_COUNT_GAPS,
	GANG_COUNT_KICKS,
	GANG_COUNT_BOOSTS,
	GANG_COUNT_UNBOOSTS,
	GANG_COUNT_EXITS,
	GANG_COUNT_WAYS,
	GANG_COUNTS,
};

void gang_count(enum gang_count what);
u64 gang_counted(enum gang_count what);

#endif /* GANG_COUNT_H */
