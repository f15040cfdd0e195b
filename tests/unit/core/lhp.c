// SPDX-License-Identifier: Apache-2.0
/* kernel-helper/core/lhp_word.h as a shared library. */
#include "lhp_word.h"

__u64 word_next(__u64 word, __s64 delta, __u64 now_ns)
{
	return lhp_next(word, delta, now_ns);
}

__u64 word_length_ns(__u64 word, __u64 now_ns)
{
	return lhp_length_ns(word, now_ns);
}

__u64 word_running(__u64 word)
{
	return lhp_running(word);
}

__u64 word_waiting(__u64 word)
{
	return lhp_waiting(word);
}
