/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_DEV_H
#define GANG_DEV_H

int gang_dev_init(void);
void gang_dev_exit(void);

#endif /* GANG_DEV_H */
