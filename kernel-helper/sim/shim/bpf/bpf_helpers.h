/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libbpf's <bpf/bpf_helpers.h> for user space: the same names, so that a BPF program compiles
 * unchanged with gcc. What a name does is in map.c, timer.c and kfunc.c.
 *
 * A map is a struct that only describes itself by the types of its members, none of which is ever
 * read. Its first word is used for the map that was made from this description.
 */
#ifndef SHIM_BPF_HELPERS_H
#define SHIM_BPF_HELPERS_H

#define SEC(name) __attribute__((used))
#define __ksym
#define __kconfig
#define __kptr
#define __percpu_kptr
#define __uptr
#define __hidden __attribute__((visibility("hidden")))
#define __arg_ctx
#define __arg_nonnull
#define __arg_nullable
#define __arg_trusted
#define __arg_arena
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define __noinline __attribute__((noinline))
#define __weak	   __attribute__((weak))

#define __uint(name, val)   int(*name)[val]
#define __type(name, val)   typeof(val) *name
#define __array(name, val)  typeof(val) *name[]
#define __ulong(name, val)  enum { ___bpf_concat(__unique_value, __COUNTER__) = val } name
#define ___bpf_concat(a, b) a##b

#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define barrier()			asm volatile("" ::: "memory")
#define barrier_var(var)		asm volatile("" : "+r"(var))
#define __bpf_unreachable()		__builtin_trap()

/* a weak function that nobody defines is no function of the kernel modelled here */
#define bpf_ksym_exists(sym) (!!(sym))

/* ---- loops: every round is counted, because it has a price (object.c) ---- */

extern unsigned long long shim_steps;

#define bpf_for(i, start, end)                                                                     \
	for (int ___n = (start); ___n < (int)(end) && ((i) = ___n, shim_steps++, 1); ___n++)

#define bpf_repeat(n) for (int ___n = 0; ___n < (int)(n) && (shim_steps++, 1); ___n++)

#define bpf_for_each(type, cur, args...)                                                           \
	for (struct bpf_iter_##type ___it                                                          \
	     __attribute__((aligned(8), cleanup(bpf_iter_##type##_destroy))),                      \
	     *___p __attribute__((unused)) = (bpf_iter_##type##_new(&___it, ##args), (void *)0);   \
	     (((cur) = bpf_iter_##type##_next(&___it)) && (shim_steps++, 1));)

#define bpf_loop(n, callback, context, flags)                                                      \
	({                                                                                         \
		int ___i;                                                                          \
		for (___i = 0; ___i < (int)(n); ___i++) {                                          \
			shim_steps++;                                                              \
			if (callback(___i, context))                                               \
				break;                                                             \
		}                                                                                  \
		___i;                                                                              \
	})

/* ---- maps ---------------------------------------------------------------- */

void *shim_map(void **handle, unsigned int type, unsigned int key_size, unsigned int value_size,
	       unsigned int entries);
void *shim_map_lookup(void *map, const void *key);
long shim_map_update(void *map, const void *key, const void *value, unsigned long long flags);
long shim_map_delete(void *map, const void *key);
long shim_map_each(void *map, long (*callback)(void *, const void *, void *, void *),
		   void *context);
void *shim_map_lookup_percpu(void *map, const void *key, unsigned int cpu);
void *shim_storage(void **handle, void *owner, unsigned int size, unsigned long long flags);
long shim_storage_delete(void **handle, void *owner);

#define ___number(field) (sizeof(*(field)) / sizeof(int))
#define ___map(m)                                                                                  \
	shim_map((void **)(m), ___number((m)->type), sizeof(*(m)->key), sizeof(*(m)->value),       \
		 ___number((m)->max_entries))

#define bpf_map_lookup_elem(m, key)		   shim_map_lookup(___map(m), key)
#define bpf_map_update_elem(m, key, value, flags)  shim_map_update(___map(m), key, value, flags)
#define bpf_map_delete_elem(m, key)		   shim_map_delete(___map(m), key)
#define bpf_map_lookup_percpu_elem(m, key, cpu)	   shim_map_lookup_percpu(___map(m), key, cpu)
#define bpf_for_each_map_elem(m, callback, ctx, f) shim_map_each(___map(m), (void *)(callback), ctx)

#define ___storage(m, owner, flags)                                                                \
	((typeof((m)->value))shim_storage((void **)(m), (void *)(owner), sizeof(*(m)->value),      \
					  flags))
#define bpf_task_storage_get(m, p, init, flags)	 ___storage(m, p, flags)
#define bpf_task_storage_delete(m, p)		 shim_storage_delete((void **)(m), p)
#define bpf_cgrp_storage_get(m, cg, init, flags) ___storage(m, cg, flags)
#define bpf_cgrp_storage_delete(m, cg)		 shim_storage_delete((void **)(m), cg)

/* ---- timers -------------------------------------------------------------- */

long shim_timer_init(void *timer, void *map);
long shim_timer_set_callback(void *timer, void *callback);
long shim_timer_start(void *timer, unsigned long long ns, unsigned long long flags);
long shim_timer_cancel(void *timer);

#define bpf_timer_init(timer, m, clock)		shim_timer_init(timer, ___map(m))
#define bpf_timer_set_callback(timer, callback) shim_timer_set_callback(timer, (void *)(callback))
#define bpf_timer_start(timer, ns, flags)	shim_timer_start(timer, ns, flags)
#define bpf_timer_cancel(timer)			shim_timer_cancel(timer)

/* ---- the rest of the helpers --------------------------------------------- */

unsigned long long bpf_ktime_get_ns(void);
unsigned long long bpf_ktime_get_boot_ns(void);
unsigned long long bpf_jiffies64(void);
unsigned int bpf_get_smp_processor_id(void);
unsigned int bpf_get_prandom_u32(void);
unsigned long long bpf_get_current_pid_tgid(void);
struct task_struct *bpf_get_current_task_btf(void);
#define bpf_per_cpu_ptr(variable, cpu) ((void)(cpu), (variable)) /* each CPU has the same */

#define bpf_rcu_read_lock()   ((void)0)
#define bpf_rcu_read_unlock() ((void)0)
/* who waits for one is left in between, where CPUs meet (race.c) */
#define bpf_spin_lock(lock)                                                                        \
	do {                                                                                       \
	} while (__sync_lock_test_and_set(&(lock)->val, 1))
#define bpf_spin_unlock(lock) __sync_lock_release(&(lock)->val)
#define bpf_printk(args...)   ((void)0)

#define bpf_probe_read(dst, size, src)	      (__builtin_memcpy(dst, src, size), 0)
#define bpf_probe_read_kernel(dst, size, src) (__builtin_memcpy(dst, src, size), 0)
#define bpf_probe_read_kernel_str(dst, size, src)                                                  \
	((src) ? (__builtin_snprintf((char *)(dst), size, "%s", (const char *)(src)), 1) : 0)

#define ___bpf_narg(args...) (sizeof((unsigned long long[]){0, ##args}) / 8 - 1)
#define ___bpf_fill(array, args...)                                                                \
	do {                                                                                       \
		unsigned long long ___v[] = {0, ##args};                                           \
		__builtin_memcpy(array, ___v + 1, sizeof(___v) - 8);                               \
	} while (0)

#endif /* SHIM_BPF_HELPERS_H */
