// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler: a fair class that serves every task of the host, and turns on top of it, in which
 * the vCPUs of a marked guest run together. docs/architecture.md says why, heading by heading; this
 * page shows how the parts meet. The example has two CPUs, a gang A of two vCPUs, and a busy loop
 * h. Each of the three weighs 100, so each is due 2/3 of a CPU.
 *
 * 1. Clock. Each cache has one: the weighted mean of the virtual times of its runnable tasks. After
 *    a turn of 12 ms both vCPUs of A are 12 ms further than before, and the clock is 8 ms further:
 *    each vCPU is 4 ms ahead of the clock, and h, which waited, is 8 ms behind it. (fair/clock,
 *    fair/account)
 *
 * 2. Weight. A weight is flat: the weight of a group is divided among its active children. If h is
 *    in a group of weight 200 with one more such loop, each of them weighs 100. (fair/weight)
 *
 * 3. Request. A task asks for twice its mean burst, at most 3 ms; a member of a gang, which never
 *    sleeps here, asks for a turn, at most 12 ms. The deadline of a task is its virtual time, plus
 *    its request over its weight. A CPU takes the earliest deadline among the tasks that are behind
 *    the clock, here h. A CPU that finds no such task takes one that is ahead, here a vCPU of A:
 *    for 24 ms h has CPU 1, and the vCPUs share CPU 0, 12 ms each. (gang/deadline, pick/next)
 *
 * 4. Turn. All three have now had 24 ms. CPU 0 chooses a vCPU of A, its sibling waits, and CPU 1
 *    runs h. h is not behind the sibling by more than 1 ms, so a turn may take its CPU. The sibling
 *    is moved there at once, and both vCPUs keep their CPUs until the next edge of a grid of 12 ms.
 *    h pays nothing meanwhile, falls behind, and is next. In 36 ms CPU 0 runs A A A, and CPU 1 runs
 *    A h h: h has 24 ms of them, and so has each vCPU. (gang/turn)
 *
 * 5. Sleep. A task that goes to sleep ahead of the clock stays counted until the clock has reached
 *    it. A task that wakes is placed at the clock, less what it was owed. If its deadline is
 *    earlier, it takes the CPU of the task with the latest deadline, in a turn only if it runs for
 *    a moment. (fair/delayed, ops/arrival)
 *
 * 6. Balance. A gang is in one cache, if it fits. A whole gang moves to the cache that has most
 *    room; an ordinary task may move whenever it is queued. (gang/balance)
 *
 * 7. Strict. A strict gang takes whole cores; a CPU idles while another gang has its core.
 *    (gang/core)
 *
 * 8. Yield. A vCPU that spins gives its CPU and its virtual time to the sibling that it names.
 *    (ops/yield)
 *
 * 9. Limits and watch. The tasks of a group that used up its cpu.max wait, and no clock counts
 *    them. A task that waits for seconds is brought forward, before the kernel's watchdog ejects
 *    the scheduler. (ops/throttle, ops/watch)
 *
 * Costs. While no task waits, no task is counted, and an operation takes no lock. Otherwise
 * an operation takes the lock of one clock, which all CPUs of a cache share. For 1/24 of the time a
 * turn may take CPUs from tasks that are owed them; these tasks get the time back later. A tick
 * looks at the head of the queue of every gang that the cache lists. A gang with members that halt
 * leaves holes that only ordinary tasks fill; a strict gang leaves them idle. A CPU that opens a
 * turn weighs each CPU of the cache, 64 at most, and does so again for each waiting sibling.
 *
 * The floors, each of which uses only those before it: kernel (what the kernel gives), state (what
 * is known), fair (which task is owed what; it knows no gangs), gang (when siblings run together),
 * pick (which task, which CPU), ops (what the kernel asks). The scheduler is one translation unit,
 * so that the verifier sees one program, and the stack, 512 bytes, is spent once.
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
/* daemon/gangd/actuate/sched_ext.py sets .flags as the running kernel knows them: ENQ_LAST and
 * others. */
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
