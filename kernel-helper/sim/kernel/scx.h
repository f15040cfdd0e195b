/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANG_SCX_H
#define GANG_SCX_H

#include "model/sim.h"

/* include/linux/sched/ext.h and kernel/sched/ext_internal.h, 6.18 */
#define SCX_SLICE_DFL		 20000000ULL
#define SCX_SLICE_INF		 (~0ULL)
#define SCX_TASK_QUEUED		 1
#define SCX_OPS_ENQ_LAST	 (1 << 1)
#define SCX_OPS_ALLOW_QUEUED	 (1 << 5)
#define SCX_DSQ_BUILTIN		 (1ULL << 63)
#define SCX_DSQ_LOCAL_ON_BIT	 (1ULL << 62)
#define SCX_DSQ_INVALID		 SCX_DSQ_BUILTIN
#define SCX_DSQ_GLOBAL		 (SCX_DSQ_BUILTIN | 1)
#define SCX_DSQ_LOCAL		 (SCX_DSQ_BUILTIN | 2)
#define SCX_DSQ_LOCAL_ON	 (SCX_DSQ_BUILTIN | SCX_DSQ_LOCAL_ON_BIT)
#define SCX_ENQ_WAKEUP		 1ULL
#define SCX_ENQ_HEAD		 16ULL
#define SCX_DSQ_ITER_REV	 (1ULL << 16)
#define SCX_ENQ_CPU_SELECTED	 (1ULL << 10)
#define SCX_ENQ_PREEMPT		 (1ULL << 32)
#define SCX_ENQ_REENQ		 (1ULL << 40)
#define SCX_ENQ_LAST		 (1ULL << 41)
#define SCX_ENQ_DSQ_PRIQ	 (1ULL << 57)
#define SCX_DEQ_SLEEP		 1ULL
#define SCX_WAKE_FORK		 4ULL
#define SCX_WAKE_TTWU		 8ULL
#define SCX_KICK_IDLE		 1
#define SCX_KICK_PREEMPT	 2
#define SCX_KICK_WAIT		 4
#define SCX_KF_DISPATCH		 2
#define SCX_KF_ENQUEUE		 4
#define SCX_KF_SELECT_CPU	 8
#define SCX_KF_REST		 16
#define SCX_DSP_DFL_MAX_BATCH	 SIM_BATCH
#define SCX_DSP_MAX_LOOPS	 32
#define SCX_WATCHDOG_MAX_TIMEOUT 30000

#endif
