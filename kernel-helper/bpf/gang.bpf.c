// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler: a fair class that serves every task of the host, and turns on top of it, in which
 * the vCPUs of a marked guest run together. docs/architecture.md tells why, one heading after the
 * other; this is how they meet, with two CPUs, a gang A of two vCPUs and a busy loop h as example.
 * All weigh 100, so each of the three is due 2/3 of a CPU.
 *
 * 1. Clock. Each cache has one: the weighted mean of the virtual times of its runnable tasks. h,
 *    which ran for 12 ms while A waited, is 12 ms further than before, the clock 4: h is 8 ms ahead
 *    of it, and each vCPU of A 4 ms behind. (fair/clock, fair/account)
 *
 * 2. Weight. It is flat: a group's weight, divided among its active children. If h is in a group of
 *    weight 200 with one more such loop, each of them weighs 100. (fair/weight)
 *
 * 3. Request. A task asks for twice its mean burst, 3 ms at most, a member of a gang for a turn, 12
 *    ms at most; its deadline is its virtual time and that, over its weight. A CPU takes the
 *    earliest deadline among those that are behind the clock. (gang/deadline, pick/next)
 *
 * 4. Turn. CPU 0 chose a vCPU of A. Its sibling waits, too, and CPU 1 runs h, which is ahead of the
 *    sibling by 12 ms: it may be taken. The sibling is moved there at once, and both vCPUs keep
 *    their CPUs until the next edge of a grid of 12 ms. h pays nothing meanwhile, falls behind, and
 *    is next. Over 36 ms: A A h, A A h, and h has 24 of them, A 24 on each CPU. (gang/turn)
 *
 * 5. Sleep. Who sleeps ahead of the clock stays counted until the clock is there; who wakes is
 *    placed at it, less what it was owed. A woken task with an earlier deadline takes the CPU of
 *    the latest one, also in a turn, if it runs for a moment only. (fair/delayed, ops/arrival)
 *
 * 6. Balance. A gang is in one cache, if it fits. Whole gangs move to the cache that has most room,
 *    ordinary tasks whenever they wait. (gang/balance)
 *
 * 7. Strict. A strict gang takes whole cores; a CPU whose core is another's idles. (gang/core)
 *
 * 8. Yield. A vCPU that spins gives its CPU and its virtual time to the sibling it names.
 * (ops/yield)
 *
 * 9. Limits and watch. A group that used its cpu.max up waits, uncounted; a task that waits for
 *    seconds is brought forward, before the kernel's watchdog ejects us. (ops/throttle, ops/watch)
 *
 * What it costs. While nobody waits a task is not counted, and an operation takes no lock; else it
 * takes one, of one clock, that all CPUs of a cache share. A turn takes CPUs from tasks that are
 * owed them for 1/24 of the time, which they get back later. A tick looks at the head of the queue
 * of every gang that the cache lists. A gang whose members halt leaves holes that only ordinary
 * tasks fill; strict, those stay idle. A CPU that opens a turn weighs each CPU of the cache: 64.
 *
 * The floors, of which each knows those before it: kernel (what the kernel gives), state (what is
 * known), fair (who is owed what; it knows no gangs), gang (when siblings run together), pick
 * (which task, which CPU), ops (what the kernel asks). One translation unit, so that the verifier
 * sees one program, and the stack, 512 bytes, is spent once.
 */
#include "ops/cgroup.bpf.h"
#include "ops/control.bpf.h"
#include "ops/cookie.bpf.h"
#include "ops/dispatch.bpf.h"
#include "ops/dump.bpf.h"
#include "ops/enqueue.bpf.h"
#include "ops/run.bpf.h"
#include "ops/select.bpf.h"
#include "ops/task.bpf.h"
#include "ops/tick.bpf.h"
#include "ops/watch.bpf.h"
#include "ops/yield.bpf.h"

char _license[] SEC("license") = "GPL";

SEC(".struct_ops.link")
struct sched_ext_ops gang_ops = {
	.select_cpu = (void *)gang_select_cpu,
	.enqueue = (void *)gang_enqueue,
	.dispatch = (void *)gang_dispatch,
	.tick = (void *)gang_tick,
	.running = (void *)gang_running,
	.stopping = (void *)gang_stopping,
	.disable = (void *)gang_disable,
	.yield = (void *)gang_yield,
	.set_cpumask = (void *)gang_set_cpumask,
	.cpu_release = (void *)gang_cpu_release,
	.init_task = (void *)gang_init_task,
	.cgroup_init = (void *)gang_cgroup_init,
	.cgroup_exit = (void *)gang_cgroup_exit,
	.cgroup_set_weight = (void *)gang_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)gang_cgroup_set_bandwidth,
	.dump = (void *)gang_dump,
	.dump_cpu = (void *)gang_dump_cpu,
	.dump_task = (void *)gang_dump_task,
	.init = (void *)gang_init,
	.exit = (void *)gang_exit,
	.timeout_ms = 10000,
	.name = "gangd",
};
