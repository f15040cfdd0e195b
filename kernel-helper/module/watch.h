/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_WATCH_H
#define GANG_WATCH_H

#include <linux/init.h>

struct work_struct;

int __init gang_watch_init(void);
int gang_watch(struct work_struct *exited);
void gang_unwatch(void);

#endif /* GANG_WATCH_H */
