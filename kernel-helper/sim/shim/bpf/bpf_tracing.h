/* SPDX-License-Identifier: Apache-2.0 */
/* libbpf's <bpf/bpf_tracing.h> for user space: a program is a function of its arguments. */
#ifndef SHIM_BPF_TRACING_H
#define SHIM_BPF_TRACING_H

#define BPF_PROG(name, args...) name(args)

#endif
