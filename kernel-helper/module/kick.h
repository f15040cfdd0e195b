/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GANG_KICK_H
#define GANG_KICK_H

#include "types.h"

void gang_kick_start(struct gang_column *column);
void gang_kick_stop(struct gang_column *column);
void gang_poke(struct gang_column *column);
void gang_poke_soon(struct gang_column *column);

#endif /* GANG_KICK_H */
