// SPDX-License-Identifier: Apache-2.0
/* kernel-helper/core/clock.h, weight.h, request.h and turn.h as a shared library: one clock. */
#include "turn.h"
#include "weight.h"

static struct fair_clock clock_;

void fair_reset(void)
{
	clock_ = (struct fair_clock){};
}

void fair_join(__u64 w, __u64 v, __u64 now)
{
	fair_clock_join(&clock_, w, v, now);
}

void fair_leave(__u64 w, __u64 v, __u64 now)
{
	fair_clock_leave(&clock_, w, v, now);
}

void fair_drop(__u64 w, __u64 v, __u64 ns, __u64 now)
{
	fair_clock_drop(&clock_, w, v, ns, now);
}

void fair_start(__u64 now)
{
	fair_clock_start(&clock_, now);
}

void fair_stop(__u64 now)
{
	fair_clock_stop(&clock_, now);
}

__u64 fair_pay(__u64 w, __u64 ns)
{
	return fair_clock_pay(&clock_, w, ns);
}

__u64 fair_reweigh(__u64 w, __u64 to, __u64 v, __u64 now)
{
	return fair_clock_reweigh(&clock_, w, to, v, now);
}

__u64 fair_reached_in(__u64 v, __u64 now)
{
	return fair_clock_in(&clock_, v, now);
}

void fair_sleep(void)
{
	fair_clock_sleep(&clock_);
}

void fair_remove(__u64 w, __u64 v, __u64 now)
{
	fair_clock_remove(&clock_, w, v, now);
}

__u64 fair_now(__u64 now)
{
	return fair_clock_at(&clock_, now);
}

__u64 fair_fits(__u64 weight, __u64 rest, __u64 limit, __u64 rate)
{
	return fair_effective(weight, rest, limit, rate);
}

__u64 fair_request_of(__u64 burst, __u64 most)
{
	return fair_request(burst, most);
}

__u64 fair_most_of(__u64 w, __u64 all, __u32 nr, __u32 cpus, __u64 most)
{
	return fair_most(w, all, nr, cpus, most);
}

__u64 fair_turn(__u64 now, __u64 grid)
{
	return turn_length(now, grid);
}

__u64 fair_turn_most(__u32 nr, __u32 cpus)
{
	return turn_most(TURN_MOST, nr, cpus);
}
