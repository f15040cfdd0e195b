// SPDX-License-Identifier: Apache-2.0
/*
 * vmm.c - a KVM guest with the flat payload, and nothing around it: the Intel row's emulator runs
 * some twenty million instructions a second, of which QEMU's start alone would take half a minute.
 *
 *   vmm loads.elf MEMORY CPUS WORDS...
 *
 * The guest's memory is the file MEMORY, so that anybody can read its counters (guests/flat/layout.h).
 * Prints its vCPU threads' numbers on one line, then what the guest says on COM1; runs until it is
 * killed.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define MEMORY_SIZE	  (4UL << 20)
#define FILE_MAX	  (1L << 20)
#define MAX_CPUS	  16
#define MAX_CPUID	  128
#define MULTIBOOT_MAGIC	  0x2badb002 /* in EAX */
#define MULTIBOOT_CMDLINE (1u << 2)
#define INFO_ADDRESS	  0x9000 /* behind the page where the payload starts its other CPUs */
#define WORDS_ADDRESS	  0x9100
#define WORDS_SIZE	  0x100
#define TSS_ADDRESS	  0xfffbd000 /* three pages that KVM uses on old Intel CPUs */
#define COM1		  0x3f8
#define COM1_STATUS	  (COM1 + 5)
#define TRANSMITTER_EMPTY 0x60

struct vcpu {
	pthread_t thread;
	int number, fd;
	struct kvm_run *run;
};

static int kvm, vm;
static uint8_t *memory;
static struct vcpu vcpus[MAX_CPUS];
static pid_t tids[MAX_CPUS];
static pthread_barrier_t named, started;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("vmm: ", stderr);
	vfprintf(stderr, format, arguments);
	fputs("\n", stderr);
	_exit(1);
}

static int control(int fd, unsigned long request, void *argument, const char *what)
{
	int result = ioctl(fd, request, argument);

	if (result < 0)
		die("cannot %s: %s", what, strerror(errno));
	return result;
}

static void create_guest(const char *path)
{
	struct kvm_pit_config pit = {
		.flags = KVM_PIT_SPEAKER_DUMMY}; /* port 0x61, which the payload polls */
	struct kvm_userspace_memory_region region = {.memory_size = MEMORY_SIZE};
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		die("cannot open /dev/kvm: %s", strerror(errno));
	vm = control(kvm, KVM_CREATE_VM, NULL, "create a guest");
	if (file < 0 || ftruncate(file, MEMORY_SIZE))
		die("cannot make %s: %s", path, strerror(errno));
	memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		die("cannot map %s: %s", path, strerror(errno));
	region.userspace_addr = (uintptr_t)memory;
	control(vm, KVM_SET_USER_MEMORY_REGION, &region, "give the guest memory");
	control(vm, KVM_SET_TSS_ADDR, (void *)TSS_ADDRESS, "place the TSS");
	control(vm, KVM_CREATE_IRQCHIP, NULL, "create the interrupt controllers");
	control(vm, KVM_CREATE_PIT2, &pit, "create the timer");
}

/* Copies the ELF file's segments to where they belong; returns its entry. */
static uint32_t load(const char *path)
{
	static uint8_t image[FILE_MAX];
	const Elf32_Ehdr *header = (const void *)image;
	const Elf32_Phdr *segment;
	FILE *file = fopen(path, "rb");
	size_t size = file ? fread(image, 1, sizeof(image), file) : 0;
	int i;

	if (size < sizeof(*header) || size == sizeof(image) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG))
		die("%s is no small ELF file", path);
	fclose(file);
	segment = (const void *)(image + header->e_phoff);
	for (i = 0; i < header->e_phnum; i++, segment++) {
		if (segment->p_type != PT_LOAD)
			continue;
		if (segment->p_offset + segment->p_filesz > size ||
		    (uint64_t)segment->p_paddr + segment->p_memsz > MEMORY_SIZE)
			die("%s does not fit into the guest", path);
		memcpy(memory + segment->p_paddr, image + segment->p_offset, segment->p_filesz);
	}
	return header->e_entry;
}

/* The payload skips the first word, as QEMU puts the file's name there. */
static void tell(const char *name, int count, char **words)
{
	uint32_t *info = (uint32_t *)(memory + INFO_ADDRESS);
	char line[WORDS_SIZE];
	int length = snprintf(line, sizeof(line), "%s", name), i;

	for (i = 0; i < count && length < WORDS_SIZE; i++)
		length += snprintf(line + length, (size_t)(WORDS_SIZE - length), " %s", words[i]);
	if (length >= WORDS_SIZE)
		die("more words than %d letters", WORDS_SIZE - 1);
	memcpy(memory + WORDS_ADDRESS, line, (size_t)length + 1);
	info[0] = MULTIBOOT_CMDLINE;
	info[4] = WORDS_ADDRESS;
}

/* The vCPU gets the CPUID of the host's CPU, with its own number as APIC id. */
static void set_cpuid(const struct vcpu *vcpu)
{
	struct kvm_cpuid2 *cpuid =
		calloc(1, sizeof(*cpuid) + MAX_CPUID * sizeof(cpuid->entries[0]));
	uint32_t i;

	if (!cpuid)
		die("no memory");
	cpuid->nent = MAX_CPUID;
	control(kvm, KVM_GET_SUPPORTED_CPUID, cpuid, "ask for the CPU's features");
	for (i = 0; i < cpuid->nent; i++) {
		struct kvm_cpuid_entry2 *entry = &cpuid->entries[i];

		if (entry->function == 1)
			entry->ebx = (entry->ebx & 0xffffff) | (uint32_t)vcpu->number << 24;
		else if (entry->function == 0xb)
			entry->edx = (uint32_t)vcpu->number;
	}
	control(vcpu->fd, KVM_SET_CPUID2, cpuid, "set the CPU's features");
	free(cpuid);
}

/* As the multiboot specification wants it: flat protected mode, no paging, interrupts off. */
static void set_entry(const struct vcpu *vcpu, uint32_t entry)
{
	struct kvm_segment flat = {
		.limit = 0xffffffff, .type = 0x3, .present = 1, .db = 1, .s = 1, .g = 1};
	struct kvm_regs regs = {
		.rax = MULTIBOOT_MAGIC, .rbx = INFO_ADDRESS, .rip = entry, .rflags = 2};
	struct kvm_sregs sregs;

	flat.selector = 0x10;
	control(vcpu->fd, KVM_GET_SREGS, &sregs, "read the registers");
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = flat;
	flat.selector = 0x08;
	flat.type = 0xb;
	sregs.cs = flat;
	sregs.cr0 = 0x11; /* PE, ET */
	control(vcpu->fd, KVM_SET_SREGS, &sregs, "set the segments");
	control(vcpu->fd, KVM_SET_REGS, &regs, "set the registers");
}

static void create_vcpu(struct vcpu *vcpu, int number, uint32_t entry)
{
	int size = control(kvm, KVM_GET_VCPU_MMAP_SIZE, NULL, "ask for the size of a vCPU");

	vcpu->number = number;
	vcpu->fd = control(vm, KVM_CREATE_VCPU, (void *)(long)number, "create a vCPU");
	vcpu->run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (vcpu->run == MAP_FAILED)
		die("cannot map a vCPU: %s", strerror(errno));
	set_cpuid(vcpu);
	if (number == 0) /* the others wait for the payload to start them */
		set_entry(vcpu, entry);
}

static void serve_port(struct kvm_run *run)
{
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	if (run->io.direction == KVM_EXIT_IO_OUT) {
		if (run->io.port == COM1)
			(void)!write(STDOUT_FILENO, data, 1);
		return;
	}
	memset(data, 0xff, (size_t)run->io.size * run->io.count);
	if (run->io.port == COM1_STATUS)
		*data = TRANSMITTER_EMPTY;
}

static void *run_vcpu(void *argument)
{
	struct vcpu *vcpu = argument;
	char name[16];

	snprintf(name, sizeof(name), "CPU %d/KVM", vcpu->number); /* as QEMU calls them */
	prctl(PR_SET_NAME, name);
	tids[vcpu->number] = gettid();
	pthread_barrier_wait(&named);
	pthread_barrier_wait(&started);
	for (;;) {
		if (ioctl(vcpu->fd, KVM_RUN, 0) < 0) {
			/* EAGAIN: another has just started it (kvm_arch_vcpu_ioctl_run()) */
			if (errno != EINTR && errno != EAGAIN)
				die("cannot run vCPU %d: %s", vcpu->number, strerror(errno));
			continue;
		}
		if (vcpu->run->exit_reason == KVM_EXIT_IO)
			serve_port(vcpu->run);
		else
			die("vCPU %d left with reason %u", vcpu->number, vcpu->run->exit_reason);
	}
}

int main(int argc, char **argv)
{
	int count = argc > 4 ? atoi(argv[3]) : 0, i;
	uint32_t entry;

	if (count < 1 || count > MAX_CPUS)
		die("usage: vmm loads.elf MEMORY CPUS WORDS..., CPUS from 1 to %d", MAX_CPUS);
	/* ordinary, however urgent whoever starts it is */
	if (setpriority(PRIO_PROCESS, 0, 0))
		die("cannot be ordinary: %s", strerror(errno));
	create_guest(argv[2]);
	entry = load(argv[1]);
	tell(argv[1], argc - 4, argv + 4);
	pthread_barrier_init(&named, NULL, (unsigned int)count + 1);
	pthread_barrier_init(&started, NULL, (unsigned int)count + 1);
	for (i = 0; i < count; i++)
		create_vcpu(&vcpus[i], i, entry);
	for (i = 0; i < count; i++)
		if (pthread_create(&vcpus[i].thread, NULL, run_vcpu, &vcpus[i]))
			die("cannot start a thread");
	pthread_barrier_wait(&named);
	for (i = 0; i < count; i++)
		printf("%d%c", tids[i], i + 1 < count ? ' ' : '\n');
	fflush(stdout);
	pthread_barrier_wait(&started);
	for (;;)
		pause();
}
