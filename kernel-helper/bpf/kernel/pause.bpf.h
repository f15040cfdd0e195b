/* SPDX-License-Identifier: GPL-2.0 */
/* PAUSE exits, as the tracepoint kvm_exit numbers them (arch/x86/kvm/trace.h). */
#ifndef KERNEL_PAUSE_BPF_H
#define KERNEL_PAUSE_BPF_H

#include "kernel/kernel.bpf.h"

enum { EXIT_PAUSE_VMX = 40, EXIT_PAUSE_SVM = 0x77, ISA_VMX = 1, ISA_SVM = 2 };

/* Return the basic reason: VMX reports flags (failed entry, enclave) above its 16 bits. */
static u32 basic_reason(u32 isa, u32 reason)
{
	return isa == ISA_VMX ? reason & 0xffff : reason;
}

/* Return true if @reason, a basic one, is a PAUSE exit. */
static bool is_pause(u32 isa, u32 reason)
{
	return (isa == ISA_SVM && reason == EXIT_PAUSE_SVM) ||
	       (isa == ISA_VMX && reason == EXIT_PAUSE_VMX);
}

#endif /* KERNEL_PAUSE_BPF_H */
