/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gangload.h - what the files of the payload share: CPU helpers, the per-CPU
 * block and the functions that start.S, main.c, smp.c and loads.c call in each other.
 */
#ifndef GANGLOAD_H
#define GANGLOAD_H

#include "layout.h"

#define STACK_SIZE	4096   /* one page a CPU; struct cpu lies at its lowest address */
#define TRAMPOLINE	0x8000 /* real-mode entry of the APs: below 1 MiB, page aligned */
#define CODE_SEGMENT	0x08
#define DATA_SEGMENT	0x10
#define VECTOR_IPI	0x40
#define VECTOR_TIMER	0x41
#define VECTOR_SPURIOUS 0xff

#ifndef __ASSEMBLER__
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define NOT_A_MEMBER 0xffffffffu

struct cpu {
	volatile u32 present; /* it came up and its APIC accepts interrupts */
	volatile u32 index;   /* place in per_cpu[], by APIC id; NOT_A_MEMBER if surplus */
	u32 apic_id;
	volatile u32 ipis; /* IPIs handled so far */
	volatile u32 timer_fired;
	u32 pending; /* units done but not yet added to per_cpu[] */
};

struct config {
	const struct load *load;
	u32 cpus;
	u32 work;
	u32 on_ms;
	u32 off_ms;
	u32 window;
	u32 grow;
	u32 reboot;
};

struct load {
	const char *name;
	enum gangload_id id;
	u32 min_cpus;
	void (*run)(struct cpu *cpu); /* never returns */
};

extern struct config config;
extern const struct load loads[];
extern u8 stacks[GANGLOAD_MAX_CPUS][STACK_SIZE];

/* start.S */
extern const u8 trampoline_start[], trampoline_end[];
extern const u32 interrupt_stubs[32];
void ipi_stub(void);
void timer_stub(void);
void spurious_stub(void);

/* main.c */
void print(const char *text);
void print_number(u32 value);
void print_hex(u32 value);
void load_idt(void);
void park(void) __attribute__((noreturn));

/* smp.c */
void apic_enable(void);
void apic_eoi(void);
void apic_send(const struct cpu *target, u8 vector);
void apic_timer_once(u32 milliseconds);
u32 start_cpus(u32 wanted);
void release_cpus(void);
struct cpu *member(u32 index);
void invite(u32 apic_id);

static inline void outb(u16 port, u8 value)
{
	asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline u8 inb(u16 port)
{
	u8 value;

	asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline void pause(void)
{
	asm volatile("pause" : : : "memory");
}

/* No segment or register is spare for a pointer: the stack page is the identity. */
static inline struct cpu *this_cpu(void)
{
	u32 esp;

	asm volatile("movl %%esp, %0" : "=r"(esp));
	return (struct cpu *)(esp & ~(u32)(STACK_SIZE - 1));
}

/*
 * The one way a u64 of the counters is written; see layout.h about tearing. The
 * first guess of the old value may itself be torn: then the exchange fails and
 * returns the true one.
 */
static inline void counter_add(volatile u64 *counter, u32 amount)
{
	u64 old = *counter;
	u64 new;
	u8 done;

	do {
		new = old + amount;
		asm volatile("lock cmpxchg8b %1"
			     : "=@ccz"(done), "+m"(*counter), "+A"(old)
			     : "b"((u32) new), "c"((u32)(new >> 32))
			     : "memory");
	} while (!done);
}

#endif
#endif
