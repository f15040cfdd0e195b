// SPDX-License-Identifier: Apache-2.0
/*
 * smp.c - local APIC and the start of the other CPUs. It uses the x2APIC where CPUID
 * offers it (MSRs, as a Linux guest of KVM would), else the xAPIC's registers in memory.
 */
#include "gangload.h"

#define MSR_APIC_BASE	   0x1b
#define MSR_X2APIC	   0x800
#define APIC_BASE_X2APIC   (1u << 10)
#define APIC_BASE_ENABLE   (1u << 11)
#define CPUID_1_ECX_X2APIC (1u << 21)

#define APIC_ID		   0x020
#define APIC_TASK_PRIORITY 0x080
#define APIC_EOI	   0x0b0
#define APIC_SPURIOUS	   0x0f0
#define APIC_ICR_LOW	   0x300
#define APIC_ICR_HIGH	   0x310
#define APIC_LVT_TIMER	   0x320
#define APIC_LVT_LINT0	   0x350
#define APIC_TIMER_INITIAL 0x380
#define APIC_TIMER_DIVIDE  0x3e0

#define SPURIOUS_APIC_ENABLE (1u << 8)
#define LVT_MASKED	     (1u << 16)
#define ICR_ASSERT	     (1u << 14)
#define ICR_INIT	     (5u << 8)
#define ICR_STARTUP	     (6u << 8)
#define ICR_ALL_BUT_SELF     (3u << 18)

#define TIMER_DIVIDE_BY_16 0x3
#define TIMER_TICKS_PER_MS 62500u /* KVM's and QEMU's virtual APIC bus runs at 1 GHz */
#define PIT_TICKS_PER_MS   1193u
#define START_TIMEOUT_MS   10000u /* vCPUs of a crowded host may wait long for a turn */
#define START_POLL_MS	   10u

void ap_main(void);

static u32 apic_base;
static u32 x2apic;
static u32 released;
static struct cpu *members[GANGLOAD_MAX_CPUS];

static u64 rdmsr(u32 msr)
{
	u64 value;

	asm volatile("rdmsr" : "=A"(value) : "c"(msr));
	return value;
}

static void wrmsr(u32 msr, u64 value)
{
	asm volatile("wrmsr" : : "c"(msr), "A"(value) : "memory");
}

static u32 apic_read(u32 reg)
{
	if (x2apic)
		return (u32)rdmsr(MSR_X2APIC + (reg >> 4));
	return *(volatile u32 *)(apic_base + reg);
}

static void apic_write(u32 reg, u32 value)
{
	if (x2apic)
		wrmsr(MSR_X2APIC + (reg >> 4), value);
	else
		*(volatile u32 *)(apic_base + reg) = value;
}

/*
 * A virtual xAPIC has sent an IPI by the time the write returns, so the delivery
 * status is not polled. An x2APIC write does not order the stores before it: fence.
 */
static void apic_command(u32 apic_id, u32 command)
{
	if (x2apic) {
		asm volatile("mfence; lfence" : : : "memory");
		wrmsr(MSR_X2APIC + (APIC_ICR_LOW >> 4), (u64)apic_id << 32 | command);
		return;
	}
	apic_write(APIC_ICR_HIGH, apic_id << 24);
	apic_write(APIC_ICR_LOW, command);
}

static u32 has_x2apic(void)
{
	u32 eax = 1, ebx, ecx = 0, edx;

	asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
	return ecx & CPUID_1_ECX_X2APIC;
}

void apic_enable(void)
{
	u64 base = rdmsr(MSR_APIC_BASE);

	apic_base = (u32)base & 0xfffff000u;
	x2apic = has_x2apic();
	wrmsr(MSR_APIC_BASE, base | APIC_BASE_ENABLE | (x2apic ? APIC_BASE_X2APIC : 0));
	apic_write(APIC_SPURIOUS, SPURIOUS_APIC_ENABLE | VECTOR_SPURIOUS);
	apic_write(APIC_TASK_PRIORITY, 0);
	apic_write(APIC_LVT_TIMER, LVT_MASKED);
	apic_write(APIC_LVT_LINT0, LVT_MASKED);
}

void apic_eoi(void)
{
	apic_write(APIC_EOI, 0);
}

void apic_send(const struct cpu *target, u8 vector)
{
	apic_command(target->apic_id, ICR_ASSERT | vector);
}

void apic_timer_once(u32 milliseconds)
{
	apic_write(APIC_TIMER_DIVIDE, TIMER_DIVIDE_BY_16);
	apic_write(APIC_LVT_TIMER, VECTOR_TIMER);
	apic_write(APIC_TIMER_INITIAL, milliseconds * TIMER_TICKS_PER_MS);
}

/* Real time, at most 54 ms, from PIT channel 2: needs no interrupt and no calibration. */
static void pit_wait(u32 milliseconds)
{
	u32 ticks = milliseconds * PIT_TICKS_PER_MS;
	u8 control = inb(0x61) & (u8)~3; /* gate and speaker off */

	outb(0x61, control);
	outb(0x43, 0xb0); /* channel 2, low then high byte, mode 0 */
	outb(0x42, (u8)ticks);
	outb(0x42, (u8)(ticks >> 8));
	outb(0x61, control | 1);
	while (!(inb(0x61) & 0x20))
		pause();
}

static void announce_cpu(struct cpu *cpu)
{
	u32 id;

	apic_enable();
	id = apic_read(APIC_ID);
	cpu->apic_id = x2apic ? id : id >> 24;
	cpu->index = NOT_A_MEMBER;
	__atomic_store_n(&cpu->present, 1, __ATOMIC_RELEASE);
}

/* Start a CPU that may have been plugged in meanwhile; nobody hears it if there is none. */
void invite(u32 apic_id)
{
	apic_command(apic_id, ICR_ASSERT | ICR_INIT);
	apic_command(apic_id, ICR_ASSERT | ICR_STARTUP | TRAMPOLINE >> 12);
}

/* Called by start.S on the CPU's own stack, in flat protected mode. */
void ap_main(void)
{
	struct cpu *cpu = this_cpu();

	load_idt();
	announce_cpu(cpu);
	while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE))
		pause();
	if (cpu->index == NOT_A_MEMBER && config.grow)
		cpu->index = __atomic_fetch_add(&counters->cpus_online, 1, __ATOMIC_ACQ_REL);
	if (cpu->index == NOT_A_MEMBER)
		park();
	config.load->run(cpu);
}

static void copy_trampoline(void)
{
	const u8 *from = trampoline_start;
	void *to = (void *)TRAMPOLINE;
	u32 size = (u32)(trampoline_end - trampoline_start);

	asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(size) : : "memory");
}

static u32 count_present(void)
{
	u32 slot, count = 0;

	for (slot = 0; slot < GANGLOAD_MAX_CPUS; slot++)
		count += __atomic_load_n(&((struct cpu *)stacks[slot])->present, __ATOMIC_ACQUIRE);
	return count;
}

/* The CPU with the smallest APIC id that is not a member yet. */
static struct cpu *next_member(void)
{
	struct cpu *best = NULL;
	u32 slot;

	for (slot = 0; slot < GANGLOAD_MAX_CPUS; slot++) {
		struct cpu *cpu = (struct cpu *)stacks[slot];

		if (!__atomic_load_n(&cpu->present, __ATOMIC_ACQUIRE) || cpu->index != NOT_A_MEMBER)
			continue;
		if (!best || cpu->apic_id < best->apic_id)
			best = cpu;
	}
	return best;
}

/*
 * Stacks are handed out in order of arrival, which is chance. By APIC id, per_cpu[n]
 * is libvirt's vCPU n, whatever the order; the boot CPU has the smallest id.
 */
static void choose_members(u32 wanted)
{
	u32 index;

	for (index = 0; index < wanted; index++) {
		members[index] = next_member();
		members[index]->index = index;
	}
}

/*
 * Start all other CPUs and wait for as many as are wanted. One more turn of waiting
 * lets surplus CPUs arrive before the members are chosen; they halt for good.
 */
u32 start_cpus(u32 wanted)
{
	u32 waited;

	announce_cpu(this_cpu());
	copy_trampoline();
	apic_command(0, ICR_ALL_BUT_SELF | ICR_ASSERT | ICR_INIT);
	pit_wait(START_POLL_MS);
	apic_command(0, ICR_ALL_BUT_SELF | ICR_ASSERT | ICR_STARTUP | TRAMPOLINE >> 12);
	pit_wait(1);
	apic_command(0, ICR_ALL_BUT_SELF | ICR_ASSERT | ICR_STARTUP | TRAMPOLINE >> 12);
	for (waited = 0; waited < START_TIMEOUT_MS && count_present() < wanted;
	     waited += START_POLL_MS)
		pit_wait(START_POLL_MS);
	pit_wait(START_POLL_MS);
	if (count_present() < wanted)
		return count_present();
	choose_members(wanted);
	return wanted;
}

void release_cpus(void)
{
	__atomic_store_n(&released, 1, __ATOMIC_RELEASE);
}

struct cpu *member(u32 index)
{
	return members[index];
}
