/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_SYSFS_H
#define GANG_SYSFS_H

int gang_sysfs_init(void);
void gang_sysfs_exit(void);

#endif /* GANG_SYSFS_H */
