/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libbpf's <bpf/bpf_core_read.h> for user space. All fields and values exist: the kernel modelled
 * here is the one whose types are in model/kernel.h. Reading through NULL gives 0, as there.
 */
#ifndef SHIM_BPF_CORE_READ_H
#define SHIM_BPF_CORE_READ_H

#define bpf_core_field_exists(field...)	    1
#define bpf_core_type_exists(type)	    1
#define bpf_core_enum_value_exists(args...) 1
#define bpf_core_enum_value(type, value)    (value)
#define bpf_core_type_size(type)	    sizeof(type)
#define bpf_core_cast(ptr, type)	    ((type *)(ptr))
#define bpf_core_read(dst, size, src)	    (__builtin_memcpy(dst, src, size), 0)

#define ___read1(s, a)                                                                             \
	({                                                                                         \
		typeof(s) ___s = (s);                                                              \
		___s ? ___s->a : (typeof(___s->a))0;                                               \
	})
#define ___read2(s, a, b)		       ___read1(___read1(s, a), b)
#define ___read3(s, a, b, c)		       ___read1(___read2(s, a, b), c)
#define ___read4(s, a, b, c, d)		       ___read1(___read3(s, a, b, c), d)
#define ___read5(s, a, b, c, d, e)	       ___read1(___read4(s, a, b, c, d), e)
#define ___pick(_1, _2, _3, _4, _5, name, ...) name
#define BPF_CORE_READ(s, args...)                                                                  \
	___pick(args, ___read5, ___read4, ___read3, ___read2, ___read1)(s, args)
#define BPF_PROBE_READ(s, args...) BPF_CORE_READ(s, args)
#define BPF_CORE_READ_INTO(dst, s, args...)                                                        \
	({                                                                                         \
		*(dst) = BPF_CORE_READ(s, args);                                                   \
		0;                                                                                 \
	})

#endif
