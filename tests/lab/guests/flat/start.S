/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.S - multiboot header, first instructions of the boot CPU and of the
 * others, interrupt stubs. Flat 32-bit protected mode throughout; CR0.PG is never set.
 */
#include "gangload.h"

#define MULTIBOOT_HEADER	0x1badb002
#define MULTIBOOT_FLAGS		0
#define CR0_PE			0x00000001
#define CR0_CACHE_OFF		0x60000000	/* CD and NW, set by INIT */

	.section .multiboot, "a"
	.align 4
	.long MULTIBOOT_HEADER
	.long MULTIBOOT_FLAGS
	.long -(MULTIBOOT_HEADER + MULTIBOOT_FLAGS)

	.text
	.code32
	.globl _start
_start:
	cli
	cld
	movl	$stacks + STACK_SIZE, %esp
	pushl	%ebx			/* multiboot information */
	pushl	%eax			/* multiboot magic */
	lgdt	gdt_pointer
	ljmp	$CODE_SEGMENT, $1f
1:	call	load_data_segments
	call	boot_main
2:	cli
	hlt
	jmp	2b

load_data_segments:
	movl	$DATA_SEGMENT, %ecx
	movl	%ecx, %ds
	movl	%ecx, %es
	movl	%ecx, %fs
	movl	%ecx, %gs
	movl	%ecx, %ss
	ret

/* An AP takes the next stack; one past the last has none and halts for good. */
ap_start:
	movl	$DATA_SEGMENT, %ecx
	movl	%ecx, %ds
	movl	$1, %eax
	lock xaddl %eax, next_stack
	cmpl	$GANGLOAD_MAX_CPUS, %eax
	jae	2b
	incl	%eax
	imull	$STACK_SIZE, %eax
	leal	stacks(%eax), %esp
	movl	%ecx, %ss
	call	load_data_segments
	call	ap_main
	jmp	2b

/* Copied to TRAMPOLINE, where a SIPI lands in real mode: addresses are relative to that. */
	.code16
	.globl trampoline_start, trampoline_end
trampoline_start:
	cli
	cld
	xorw	%ax, %ax
	movw	%ax, %ds
	lgdtl	TRAMPOLINE + trampoline_gdt_pointer - trampoline_start
	movl	%cr0, %eax
	andl	$~CR0_CACHE_OFF, %eax
	orl	$CR0_PE, %eax
	movl	%eax, %cr0
	ljmpl	$CODE_SEGMENT, $ap_start
	.align 4
trampoline_gdt_pointer:
	.word	gdt_end - gdt - 1
	.long	gdt
trampoline_end:
	.code32

/* The CPU pushes an error code for some exceptions: the others push a zero in its place. */
	.macro exception number
exception_\number:
	.if (\number == 8) || (\number >= 10 && \number <= 14) || (\number == 17) || \
	    (\number == 21) || (\number == 29) || (\number == 30)
	.else
	pushl	$0
	.endif
	pushl	$\number
	jmp	interrupt_common
	.endm

	.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	exception \number
	.endr
	.irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	exception \number
	.endr

	.globl ipi_stub, timer_stub, spurious_stub
ipi_stub:
	pushl	$0
	pushl	$VECTOR_IPI
	jmp	interrupt_common
timer_stub:
	pushl	$0
	pushl	$VECTOR_TIMER
	jmp	interrupt_common
spurious_stub:				/* a spurious interrupt takes no EOI */
	iret

interrupt_common:
	pushal
	cld
	pushl	%esp
	call	interrupt
	addl	$4, %esp
	popal
	addl	$8, %esp		/* vector and error code */
	iret

	.section .rodata
	.align 4
	.globl interrupt_stubs
interrupt_stubs:
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	.long	exception_\number
	.endr
	.irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	.long	exception_\number
	.endr

	.data
	.align 8
gdt:
	.quad	0
	.quad	0x00cf9b000000ffff	/* CODE_SEGMENT: base 0, 4 GiB */
	.quad	0x00cf93000000ffff	/* DATA_SEGMENT: base 0, 4 GiB */
gdt_end:
gdt_pointer:
	.word	gdt_end - gdt - 1
	.long	gdt
	.align 4
next_stack:
	.long	1			/* stack 0 is the boot CPU's */

	.section .note.GNU-stack, "", @progbits
