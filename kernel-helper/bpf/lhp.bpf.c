// SPDX-License-Identifier: GPL-2.0
/*
 * Probes: what the vCPUs of a guest do to each other.
 *
 * The probes answer three questions about every registered vCPU thread, whatever schedules it:
 *   - which VM exits it takes, by reason (tracepoint kvm:kvm_exit);
 *   - which of its PAUSE exits are lock-holder preemption: a PAUSE exit counts as LHP if at that
 *     moment a sibling was runnable and off its CPU. If every runnable sibling was on a CPU, the
 *     exit is contention inside the guest, which no scheduler can cure;
 *   - how long the guest ran, and how much of that with no sibling waiting (the co-run time).
 *
 * The state of a guest is one 64-bit word, which CPUs change by compare-and-swap (core/lhp_word.h).
 * The CPU that swaps the word owns the interval that ended, and adds its length to corun_ns
 * (running > 0 and waiting == 0) or costop_ns (running > 0 and waiting > 0).
 *
 * What goes wrong: the probes do not see a vCPU that was registered while it waited until its first
 * transition, so the first milliseconds of a guest are not counted. A reader sees counters up to
 * the last transition, not up to now.
 *
 * Where transitions are seen: KVM loads a vCPU onto the CPU of its thread, and puts it down, at
 * each switch of that thread, and at each way into KVM and out of it. Only vCPUs' threads come
 * there, and no other task of the host pays anything. A thread that QEMU keeps in user space counts
 * as one that does not want to run, also if it is preempted there. Where KVM has no BTF, or the
 * guest is emulated without KVM, the probes use the scheduler's tracepoints. These see user space,
 * too, and cost two hash lookups at every switch of the host, and one at every wakeup.
 *
 * Cost besides: one lookup and one update per VM exit of a registered vCPU.
 */
#include "kernel/kernel.bpf.h"
#include "kernel/pause.bpf.h"
#include "gang_abi.h"
#include "lhp_word.h"

char _license[] SEC("license") = "GPL";

#define CAS_TRIES 32

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GANG_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct lhp_vcpu);
} vcpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GANG_MAX_GUESTS);
	__type(key, u32);
	__type(value, struct lhp_guest);
} guests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32 * GANG_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lhp_exit_key);
	__type(value, u64);
} exits SEC(".maps");

static struct lhp_vcpu *find_vcpu(u32 tid, u32 tgid)
{
	struct lhp_vcpu *vcpu = bpf_map_lookup_elem(&vcpus, &tid);

	return vcpu && vcpu->tgid == tgid ? vcpu : NULL;
}

static struct lhp_guest *find_guest(u32 guest)
{
	return bpf_map_lookup_elem(&guests, &guest);
}

/*
 * Close the interval that ends now, and add @delta to the counts of @guest. If other CPUs swap the
 * word all the time, change only the counts: the CPU that swaps next closes this interval, too.
 */
static void account(struct lhp_guest *guest, s64 delta)
{
	u64 now = bpf_ktime_get_ns(), old, new, ns;
	int i;

	/* a plain bounded loop: bpf_for needs 6.4, and the probes serve older kernels, too */
	for (i = 0; i < CAS_TRIES; i++) {
		old = *(volatile u64 *)&guest->word;
		new = lhp_next(old, delta, now);
		if (__sync_val_compare_and_swap(&guest->word, old, new) != old)
			continue;
		if (!lhp_running(old))
			return;
		ns = lhp_length_ns(old, now);
		if (lhp_waiting(old))
			__sync_fetch_and_add(&guest->costop_ns, ns);
		else
			__sync_fetch_and_add(&guest->corun_ns, ns);
		return;
	}
	__sync_fetch_and_add(&guest->word, delta);
}

static s64 weight_of(u32 state)
{
	if (state == LHP_RUNNING)
		return LHP_ONE_RUNNING;
	return state == LHP_WAITING ? LHP_ONE_WAITING : 0;
}

/* Record that the vCPU went from @old to @state. */
static void note(const struct lhp_vcpu *vcpu, u32 old, u32 state)
{
	struct lhp_guest *guest = find_guest(vcpu->guest);
	s64 delta = weight_of(state) - weight_of(old);

	if (guest && delta)
		account(guest, delta);
}

/* Put the vCPU in @state, whatever it was in. */
static void enter(struct lhp_vcpu *vcpu, u32 state)
{
	note(vcpu, __sync_lock_test_and_set(&vcpu->state, state), state);
}

/* Put the vCPU in the running state, on @cpu. */
static void enter_running(struct lhp_vcpu *vcpu, u32 cpu)
{
	vcpu->cpu = cpu + 1;
	enter(vcpu, LHP_RUNNING);
}

/* Record that the vCPU was woken, which changes nothing if it runs or waits already. */
static void wake(struct lhp_vcpu *vcpu)
{
	u32 old = *(volatile u32 *)&vcpu->state;

	if ((old == LHP_BLOCKED || old == LHP_UNSEEN) &&
	    __sync_val_compare_and_swap(&vcpu->state, old, LHP_WAITING) == old)
		note(vcpu, old, LHP_WAITING);
}

static struct lhp_vcpu *find_current(void)
{
	u64 id = bpf_get_current_pid_tgid();

	return find_vcpu((u32)id, id >> 32);
}

/* ---- KVM's own transitions: vCPUs' threads alone come here ------------------ */

SEC("fentry/kvm_arch_vcpu_load")
int BPF_PROG(on_load, struct kvm_vcpu *kvm, int cpu)
{
	struct lhp_vcpu *vcpu = find_current();

	if (vcpu)
		enter_running(vcpu, cpu);
	return 0;
}

SEC("fentry/kvm_arch_vcpu_put")
int BPF_PROG(on_put, struct kvm_vcpu *kvm)
{
	struct lhp_vcpu *vcpu = find_current();

	if (vcpu)
		enter(vcpu, kvm->preempted ? LHP_WAITING : LHP_BLOCKED);
	return 0;
}

/* kvm_vcpu_wake_up() is often inlined; few other tasks wait in this way. */
SEC("fentry/rcuwait_wake_up")
int BPF_PROG(on_rcuwait, struct rcuwait *wait)
{
	struct task_struct *p = BPF_CORE_READ(wait, task);
	struct lhp_vcpu *vcpu;

	if (!p)
		return 0;
	vcpu = find_vcpu(BPF_CORE_READ(p, pid), BPF_CORE_READ(p, tgid));
	if (vcpu)
		wake(vcpu);
	return 0;
}

/* ---- the scheduler's, where KVM's cannot be had ----------------------------- */

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct lhp_vcpu *vcpu;

	vcpu = find_vcpu(prev->pid, prev->tgid);
	if (vcpu)
		enter(vcpu, preempt || !prev_state ? LHP_WAITING : LHP_BLOCKED);
	vcpu = find_vcpu(next->pid, next->tgid);
	if (vcpu)
		enter_running(vcpu, bpf_get_smp_processor_id());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	struct lhp_vcpu *vcpu = find_vcpu(p->pid, p->tgid);

	if (vcpu)
		wake(vcpu);
	return 0;
}

/* ---- both ways of telling transitions --------------------------------------- */

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_task_exit, struct task_struct *p)
{
	struct lhp_vcpu *vcpu = find_vcpu(p->pid, p->tgid);
	u32 tid = p->pid;

	if (!vcpu)
		return 0;
	enter(vcpu, LHP_BLOCKED);
	bpf_map_delete_elem(&vcpus, &tid);
	return 0;
}

static void count_exit(struct lhp_exit_key *key)
{
	u64 one = 1, *count = bpf_map_lookup_elem(&exits, key);

	/* a vCPU exits on one CPU at a time: no two CPUs write one key */
	if (count)
		(*count)++;
	else
		bpf_map_update_elem(&exits, key, &one, BPF_NOEXIST);
}

SEC("tracepoint/kvm/kvm_exit")
int on_exit(struct trace_event_raw_kvm_exit *ctx)
{
	struct lhp_vcpu *vcpu = find_current();
	struct lhp_exit_key key = {};
	struct lhp_guest *guest;

	if (!vcpu)
		return 0;
	key.guest = vcpu->guest;
	key.vcpu = vcpu->vcpu;
	key.isa = ctx->isa;
	key.reason = basic_reason(ctx->isa, ctx->exit_reason);
	count_exit(&key);
	if (!is_pause(key.isa, key.reason))
		return 0;
	vcpu->pause_exits++;
	guest = find_guest(vcpu->guest);
	if (guest && lhp_waiting(*(volatile u64 *)&guest->word))
		vcpu->lhp_exits++;
	return 0;
}
