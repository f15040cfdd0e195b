/* SPDX-License-Identifier: GPL-2.0 */
/* PAUSE exits, as the tracepoint kvm_exit numbers them (arch/x86/kvm/trace.h). */
#ifndef KERNEL_PAUSE_BPF_H
#define KERNEL_PAUSE_BPF_H

#include "kernel/kernel.bpf.h"

enum { EXIT_PAUSE_VMX = 40, EXIT_PAUSE_SVM = 0x77, ISA_VMX = 1, ISA_SVM = 2 };

/* VMX reports flags (failed entry, enclave) above the 16-bit basic reason. */
static u32 basic_reason(u32 isa, u32 reason)
{
	return isa == ISA_VMX ? reason & 0xffff : reason;
}

/* @reason is a basic one. */
static bool is_pause(u32 isa, u32 reason)
{
	return (isa == ISA_SVM && reason == EXIT_PAUSE_SVM) ||
	       (isa == ISA_VMX && reason == EXIT_PAUSE_VMX);
}

#endif /* KERNEL_PAUSE_BPF_H */
