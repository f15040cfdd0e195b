// SPDX-License-Identifier: Apache-2.0
/*
 * loads.c - the measured loops. Each runs for good on every vCPU that takes part.
 * Nothing in them prints, and nothing leaves the guest but what the load is about:
 * PAUSE, HLT, IPIs, the timer. Busy waits PAUSE; private work does not.
 */
#include "gangload.h"

#define CACHE_LINE   64
#define UNITS_A_LOOK 65536 /* longer than a CPU takes to start */
#define TALLY	     64	   /* units between two updates of shared memory */
#define BLOCK	     50

static struct {
	u32 arrived __attribute__((aligned(CACHE_LINE)));
	u32 sense __attribute__((aligned(CACHE_LINE)));
} barrier;

static u32 spinlock __attribute__((aligned(CACHE_LINE)));

/*
 * One turn of a busy wait. Hardware exits on PAUSE only after some thousands of
 * them in a row (AMD's pause filter, Intel's PLE window); an emulator without a
 * filter exits on each. window=3000 makes the guest count the turns itself, so
 * that such a host sees the exits a real one would.
 */
static void wait_turn(u32 *turns)
{
	if (++*turns % config.window == 0)
		pause();
}

/*
 * work= turns of two instructions, about a cycle each on hardware. BLOCK of them make a turn of
 * the loop, for an emulator pays by the jump.
 */
static void work(void)
{
	u32 turns = config.work;

	while (turns >= BLOCK)
		asm volatile(".rept %c1; decl %0; nop; .endr" : "+r"(turns) : "i"(BLOCK));
	if (turns)
		asm volatile("1: decl %0; jnz 1b" : "+r"(turns));
}

/*
 * The vCPUs' counters share cache lines: writing them at every unit would make
 * independent vCPUs wait for each other. So per_cpu[] lags by less than TALLY units.
 */
static u32 tally(struct cpu *cpu)
{
	if (++cpu->pending < TALLY)
		return 0;
	cpu->pending = 0;
	counter_add(&counters->per_cpu[cpu->index], TALLY);
	return TALLY;
}

/* One unit of work shared with nobody. */
static void spin_unit(struct cpu *cpu)
{
	u32 published;

	work();
	published = tally(cpu);
	if (published)
		counter_add(&counters->iterations, published);
}

static void spin_forever(struct cpu *cpu) __attribute__((noreturn));
static void spin_forever(struct cpu *cpu)
{
	for (;;)
		spin_unit(cpu);
}

/* The last to arrive counts the crossing, then lets the others go. */
static void run_barrier(struct cpu *cpu)
{
	u32 sense = 0;

	for (;;) {
		work();
		sense = !sense;
		if (__atomic_add_fetch(&barrier.arrived, 1, __ATOMIC_ACQ_REL) == config.cpus) {
			barrier.arrived = 0;
			counter_add(&counters->iterations, 1);
			__atomic_store_n(&barrier.sense, sense, __ATOMIC_RELEASE);
		} else {
			u32 turns = 0;

			while (__atomic_load_n(&barrier.sense, __ATOMIC_ACQUIRE) != sense)
				wait_turn(&turns);
		}
		tally(cpu);
	}
}

/* Test and set, as Linux falls back to in a guest without paravirtual locks. */
static void lock(void)
{
	u32 turns = 0;

	while (__atomic_exchange_n(&spinlock, 1, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&spinlock, __ATOMIC_RELAXED))
			wait_turn(&turns);
}

static void unlock(void)
{
	__atomic_store_n(&spinlock, 0, __ATOMIC_RELEASE);
}

/* As much work inside the lock as outside. An iteration is one critical section. */
static void run_spinlock(struct cpu *cpu)
{
	for (;;) {
		lock();
		work();
		counter_add(&counters->iterations, 1);
		unlock();
		work();
		tally(cpu);
	}
}

/* Port 0xcf9 of the chipset, as any system that reboots itself writes it. */
static void __attribute__((noreturn)) reset(void)
{
	outb(0xcf9, 0x06);
	park();
}

/* vCPU 0 also starts whoever was plugged in (grow=), by the next APIC id, or resets the machine
 * (reboot=). */
static void run_spin(struct cpu *cpu)
{
	u32 units;

	if (cpu->index || !(config.grow || config.reboot))
		spin_forever(cpu);
	for (units = 1;; units++) {
		spin_unit(cpu);
		if (config.grow && units % UNITS_A_LOOK == 0 &&
		    counters->cpus_online < GANGLOAD_MAX_CPUS)
			invite(counters->cpus_online);
		if (units == config.reboot)
			reset();
	}
}

static void interrupts_on(void)
{
	asm volatile("sti" : : : "memory");
}

/* STI takes effect after the next instruction: no interrupt slips in before HLT. */
static void halt_until(volatile u32 *variable, u32 value)
{
	asm volatile("cli" : : : "memory");
	while (*variable != value)
		asm volatile("sti; hlt; cli" : : : "memory");
	interrupts_on();
}

static void shoot_down(u32 round)
{
	u32 i, turns = 0;

	for (i = 1; i < config.cpus; i++)
		apic_send(member(i), VECTOR_IPI);
	for (i = 1; i < config.cpus; i++)
		while (__atomic_load_n(&member(i)->ipis, __ATOMIC_ACQUIRE) != round)
			wait_turn(&turns);
}

/* An iteration is one IPI to every other vCPU, acknowledged by all. interrupt() counts. */
static void run_ipi(struct cpu *cpu)
{
	u32 round = 0;

	interrupts_on();
	while (cpu->index != 0)
		work();
	for (;;) {
		work();
		shoot_down(++round);
		counter_add(&counters->per_cpu[0], 1);
		counter_add(&counters->iterations, 1);
	}
}

/* Pairs (0,1), (2,3), ...; an iteration is there and back. The odd one out halts. */
static void run_sleepwake(struct cpu *cpu)
{
	u32 partner = cpu->index ^ 1;
	u32 turn = 0;

	if (partner >= config.cpus)
		park();
	interrupts_on();
	for (;;) {
		if (cpu->index & 1)
			halt_until(&cpu->ipis, ++turn);
		work();
		apic_send(member(partner), VECTOR_IPI);
		if (!(cpu->index & 1)) {
			halt_until(&cpu->ipis, ++turn);
			counter_add(&counters->iterations, 1);
		}
	}
}

static void run_halt(struct cpu *cpu)
{
	if (cpu->index != 0)
		park();
	spin_forever(cpu);
}

static void arm_timer(struct cpu *cpu, u32 milliseconds)
{
	cpu->timer_fired = 0;
	apic_timer_once(milliseconds);
}

/* vCPU 1 alternates for on= and off= milliseconds, vCPU 0 spins, others halt. */
static void run_duty(struct cpu *cpu)
{
	if (cpu->index > 1)
		park();
	if (cpu->index == 0)
		spin_forever(cpu);
	interrupts_on();
	for (;;) {
		counters->phase = PHASE_SPINNING;
		arm_timer(cpu, config.on_ms);
		while (!cpu->timer_fired)
			spin_unit(cpu);
		counters->phase = PHASE_HALTED;
		arm_timer(cpu, config.off_ms);
		halt_until(&cpu->timer_fired, 1);
	}
}

const struct load loads[] = {
	{"barrier", LOAD_BARRIER, 1, run_barrier},
	{"spinlock", LOAD_SPINLOCK, 1, run_spinlock},
	{"spin", LOAD_SPIN, 1, run_spin},
	{"ipi", LOAD_IPI, 2, run_ipi},
	{"sleepwake", LOAD_SLEEPWAKE, 2, run_sleepwake},
	{"halt", LOAD_HALT, 1, run_halt},
	{"duty", LOAD_DUTY, 2, run_duty},
	{NULL, 0, 0, NULL},
};
