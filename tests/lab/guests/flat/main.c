// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - a gangload guest from multiboot entry to the start of its load: serial
 * port, interrupt table, command line. Nothing here runs in a measured loop but interrupt().
 */
#include "gangload.h"

#define MULTIBOOT_BOOTED      0x2badb002u
#define MULTIBOOT_HAS_CMDLINE (1u << 2)
#define COM1		      0x3f8
#define MAX_PHASE_MS	      60000u /* keeps the APIC timer's count within 32 bits */

struct multiboot_info {
	u32 flags;
	u32 mem_lower;
	u32 mem_upper;
	u32 boot_device;
	const char *cmdline;
};

struct interrupt_frame {
	u32 edi, esi, ebp, esp, ebx, edx, ecx, eax;
	u32 vector, error;
	u32 eip, cs, eflags;
};

struct gate {
	u16 offset_low, segment, type, offset_high;
};

struct word {
	const char *text;
	u32 length;
};

struct config config = {.work = 300, .on_ms = 500, .off_ms = 500, .window = 1};
u8 stacks[GANGLOAD_MAX_CPUS][STACK_SIZE] __attribute__((aligned(STACK_SIZE)));
static struct gate idt[256];
static u32 exception_lock;

void boot_main(u32 magic, const struct multiboot_info *info);
void interrupt(const struct interrupt_frame *frame);

void park(void)
{
	for (;;)
		asm volatile("cli; hlt" : : : "memory");
}

static void serial_setup(void)
{
	outb(COM1 + 1, 0x00); /* no interrupts */
	outb(COM1 + 3, 0x80); /* divisor latch: 115200 baud */
	outb(COM1 + 0, 0x01);
	outb(COM1 + 1, 0x00);
	outb(COM1 + 3, 0x03); /* 8N1 */
	outb(COM1 + 2, 0x07); /* FIFOs on and empty */
}

/* Without a serial port the status reads 0xff, "ready": the text is lost, nothing hangs. */
static void print_char(char c)
{
	while (!(inb(COM1 + 5) & 0x20))
		pause();
	outb(COM1, (u8)c);
}

void print(const char *text)
{
	for (; *text; text++)
		print_char(*text);
}

void print_number(u32 value)
{
	if (value >= 10)
		print_number(value / 10);
	print_char((char)('0' + value % 10));
}

void print_hex(u32 value)
{
	int shift;

	print("0x");
	for (shift = 28; shift >= 0; shift -= 4)
		print_char("0123456789abcdef"[value >> shift & 15]);
}

/* The command line is someone else's text: only its printable characters reach the log. */
static void print_word(struct word word)
{
	u32 i;

	for (i = 0; i < word.length && i < 32; i++)
		print_char(word.text[i] > ' ' && word.text[i] <= '~' ? word.text[i] : '?');
}

/* One CPU reports, once: if it or another faults again, that one only halts. */
static void report_exception(const struct interrupt_frame *frame)
{
	if (!__atomic_exchange_n(&exception_lock, 1, __ATOMIC_ACQUIRE)) {
		print("gangload: exception ");
		print_number(frame->vector);
		print(" eip=");
		print_hex(frame->eip);
		print(" error=");
		print_hex(frame->error);
		print(" stack=");
		print_number((u32)(((u8 *)this_cpu() - stacks[0]) / STACK_SIZE));
		print("\n");
	}
	park();
}

void interrupt(const struct interrupt_frame *frame)
{
	struct cpu *cpu = this_cpu();

	if (frame->vector == VECTOR_IPI) {
		if (cpu->index != NOT_A_MEMBER)
			counter_add(&counters->per_cpu[cpu->index], 1);
		__atomic_store_n(&cpu->ipis, cpu->ipis + 1, __ATOMIC_RELEASE);
	} else if (frame->vector == VECTOR_TIMER) {
		cpu->timer_fired = 1;
	} else {
		report_exception(frame);
	}
	apic_eoi();
}

static void set_gate(u32 vector, u32 handler)
{
	idt[vector] = (struct gate){
		.offset_low = (u16)handler,
		.segment = CODE_SEGMENT,
		.type = 0x8e00, /* present, ring 0, 32-bit interrupt gate */
		.offset_high = (u16)(handler >> 16),
	};
}

static void fill_idt(void)
{
	u32 vector;

	for (vector = 0; vector < 32; vector++)
		set_gate(vector, interrupt_stubs[vector]);
	set_gate(VECTOR_IPI, (u32)ipi_stub);
	set_gate(VECTOR_TIMER, (u32)timer_stub);
	set_gate(VECTOR_SPURIOUS, (u32)spurious_stub);
}

void load_idt(void)
{
	struct {
		u16 limit;
		u32 base;
	} __attribute__((packed)) pointer = {sizeof(idt) - 1, (u32)idt};

	asm volatile("lidt %0" : : "m"(pointer));
}

/* The firmware leaves the PIT ticking into vector 8, which would look like a double fault. */
static void mask_legacy_interrupts(void)
{
	outb(0x21, 0xff);
	outb(0xa1, 0xff);
}

static struct word next_word(const char **cursor)
{
	struct word word;

	while (**cursor == ' ')
		(*cursor)++;
	word.text = *cursor;
	while (**cursor && **cursor != ' ')
		(*cursor)++;
	word.length = (u32)(*cursor - word.text);
	return word;
}

/* If word begins with text: what follows it; else NULL. */
static const char *after(struct word word, const char *text)
{
	u32 i;

	for (i = 0; text[i]; i++)
		if (i >= word.length || word.text[i] != text[i])
			return NULL;
	return word.text + i;
}

static int equals(struct word word, const char *text)
{
	return after(word, text) == word.text + word.length;
}

/* Decimal within [min, max], ending where the word ends. */
static int parse_number(const char *text, const char *end, u32 min, u32 max, u32 *result)
{
	u32 value = 0;

	if (text == end)
		return 0;
	for (; text < end; text++) {
		u32 digit = (u32)(*text - '0');

		if (digit > 9 || value > (max - digit) / 10)
			return 0;
		value = value * 10 + digit;
	}
	*result = value;
	return value >= min;
}

static int parse_option(struct word word)
{
	const struct {
		const char *key;
		u32 *value;
		u32 min, max;
	} options[] = {
		{"cpus=", &config.cpus, 1, GANGLOAD_MAX_CPUS},
		{"work=", &config.work, 1, 1000000000},
		{"window=", &config.window, 1, 1000000000},
		{"on=", &config.on_ms, 1, MAX_PHASE_MS},
		{"off=", &config.off_ms, 1, MAX_PHASE_MS},
		{"grow=", &config.grow, 0, 1},
		{"reboot=", &config.reboot, 0, 1000000000},
	};
	const char *text;
	u32 i;

	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		text = after(word, options[i].key);
		if (text)
			return parse_number(text, word.text + word.length, options[i].min,
					    options[i].max, options[i].value);
	}
	return 0;
}

static void __attribute__((noreturn)) fail_word(const char *problem, struct word word)
{
	print("gangload: ");
	print(problem);
	print(" '");
	print_word(word);
	print("'\n");
	park();
}

static void __attribute__((noreturn)) fail_unknown_load(struct word word)
{
	const struct load *load;

	print("gangload: unknown load '");
	print_word(word);
	print("', known:");
	for (load = loads; load->name; load++) {
		print(" ");
		print(load->name);
	}
	print("\n");
	park();
}

static void __attribute__((noreturn)) fail_cpus(const char *problem, u32 count)
{
	print("gangload: ");
	print(config.load->name);
	print(problem);
	print_number(count);
	print("\n");
	park();
}

/* The first word is the kernel's file name, put there by QEMU. */
static void parse_command_line(const char *cursor)
{
	const struct load *load;
	struct word word;

	next_word(&cursor);
	word = next_word(&cursor);
	for (load = loads; load->name && !equals(word, load->name); load++)
		;
	if (!load->name)
		fail_unknown_load(word);
	config.load = load;
	for (word = next_word(&cursor); word.length; word = next_word(&cursor))
		if (!parse_option(word))
			fail_word("bad option", word);
	if (!config.cpus)
		fail_cpus(" needs cpus=, a number from 1 to ", GANGLOAD_MAX_CPUS);
	if (config.cpus < load->min_cpus)
		fail_cpus(" needs at least cpus=", load->min_cpus);
}

/* The magic goes last: a reader that sees it sees everything else. */
/*
 * The BIOS leaves the PIT ticking 18 times a second, and a KVM host serves it with a
 * thread of its own. Mode 0 with a new count: it expires once, then stays silent.
 */
static void silence_pit(void)
{
	outb(0x43, 0x30);
	outb(0x40, 1);
	outb(0x40, 0);
}

static void publish_counters(void)
{
	u32 i;

	counters->magic[0] = 0;
	counters->magic[1] = 0;
	counters->version = GANGLOAD_VERSION;
	counters->cpus_online = config.cpus;
	counters->load = config.load->id;
	counters->phase = PHASE_NONE;
	counters->iterations = 0;
	for (i = 0; i < GANGLOAD_MAX_CPUS; i++)
		counters->per_cpu[i] = 0;
	counters->magic[0] = GANGLOAD_MAGIC_LOW;
	counters->magic[1] = GANGLOAD_MAGIC_HIGH;
}

static void print_ready(void)
{
	print("gangload ");
	print(config.load->name);
	print(" cpus=");
	print_number(config.cpus);
	print(" ready\n");
}

void boot_main(u32 magic, const struct multiboot_info *info)
{
	u32 online;

	serial_setup();
	if (magic != MULTIBOOT_BOOTED || !(info->flags & MULTIBOOT_HAS_CMDLINE)) {
		print("gangload: not started by a multiboot loader with a command line\n");
		park();
	}
	fill_idt();
	load_idt();
	mask_legacy_interrupts();
	silence_pit();
	parse_command_line(info->cmdline);
	online = start_cpus(config.cpus);
	if (online < config.cpus)
		fail_cpus(" did not get the CPUs of cpus=, online: ", online);
	publish_counters();
	print_ready();
	release_cpus();
	config.load->run(this_cpu());
}
