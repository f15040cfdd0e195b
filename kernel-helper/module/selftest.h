/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_SELFTEST_H
#define GANG_SELFTEST_H

#ifdef GANG_DEBUG
int gang_selftest(void);
#else
static inline int gang_selftest(void)
{
	return 0;
}
#endif

#endif /* GANG_SELFTEST_H */
