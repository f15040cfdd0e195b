# SPDX-License-Identifier: Apache-2.0
"""Names of VM exit reasons, the same word for the same event on Intel and AMD where there is one.

Sources: arch/x86/include/uapi/asm/vmx.h (EXIT_REASON_*), svm.h (SVM_EXIT_*);
Intel SDM vol. 3 appendix C, AMD APM vol. 2 appendix C.
"""

from __future__ import annotations

ISA_VMX, ISA_SVM = 1, 2

_VMX = {
    0: "exception",
    1: "external_interrupt",
    2: "triple_fault",
    3: "init",
    4: "sipi",
    7: "interrupt_window",
    8: "nmi_window",
    9: "task_switch",
    10: "cpuid",
    12: "hlt",
    13: "invd",
    14: "invlpg",
    15: "rdpmc",
    16: "rdtsc",
    18: "hypercall",
    28: "cr_access",
    29: "dr_access",
    30: "io",
    31: "msr_read",
    32: "msr_write",
    33: "invalid_state",
    36: "mwait",
    37: "monitor_trap",
    39: "monitor",
    40: "pause",
    41: "machine_check",
    43: "tpr_below_threshold",
    44: "apic_access",
    45: "eoi_induced",
    46: "gdtr_idtr",
    47: "ldtr_tr",
    48: "ept_violation",
    49: "ept_misconfiguration",
    50: "invept",
    51: "rdtscp",
    52: "preemption_timer",
    53: "invvpid",
    54: "wbinvd",
    55: "xsetbv",
    56: "apic_write",
    57: "rdrand",
    58: "invpcid",
    59: "vmfunc",
    61: "rdseed",
    62: "pml_full",
    63: "xsaves",
    64: "xrstors",
    67: "umwait",
    68: "tpause",
    74: "bus_lock",
    75: "notify",
}

_SVM = {
    0x60: "external_interrupt",
    0x61: "nmi",
    0x62: "smi",
    0x63: "init",
    0x64: "interrupt_window",
    0x66: "gdtr_idtr",
    0x6E: "rdtsc",
    0x6F: "rdpmc",
    0x70: "pushf",
    0x71: "popf",
    0x72: "cpuid",
    0x73: "rsm",
    0x74: "iret",
    0x75: "software_interrupt",
    0x76: "invd",
    0x77: "pause",
    0x78: "hlt",
    0x79: "invlpg",
    0x7A: "invlpga",
    0x7B: "io",
    0x7C: "msr",
    0x7D: "task_switch",
    0x7E: "ferr_freeze",
    0x7F: "triple_fault",
    0x80: "vmrun",
    0x81: "hypercall",
    0x82: "vmload",
    0x83: "vmsave",
    0x84: "stgi",
    0x85: "clgi",
    0x86: "skinit",
    0x87: "rdtscp",
    0x88: "icebp",
    0x89: "wbinvd",
    0x8A: "monitor",
    0x8B: "mwait",
    0x8C: "mwait_armed",
    0x8D: "xsetbv",
    0x8E: "rdpru",
    0x8F: "efer_write",
    0xA0: "invlpgb",
    0xA2: "invpcid",
    0xA5: "bus_lock",
    0xA6: "idle_hlt",
    0x400: "npf",
    0x401: "avic_incomplete_ipi",
    0x402: "avic_unaccelerated_access",
    0x403: "vmgexit",
    0xFFFFFFFF: "invalid_state",
}


def reason_name(isa: int, reason: int) -> str:
    """The word for an exit reason, e.g. "pause"; "svm_0x1ff" for one that has none here."""
    if isa == ISA_VMX:
        return _VMX.get(reason, f"vmx_{reason:#x}")
    if reason in _SVM:
        return _SVM[reason]
    if reason <= 0x3F:
        return ("cr_access", "dr_access")[reason >= 0x20]
    return "exception" if reason <= 0x5F else f"svm_{reason:#x}"
