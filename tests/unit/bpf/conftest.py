# SPDX-License-Identifier: Apache-2.0
"""BPF objects for the tests, compiled on the spot, and the reasons to do without."""

import errno
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # `sample` skips where the extension is not built
    from gangd.bpf import Object

HEAD = r"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
char LICENSE[] SEC("license") = "GPL";
"""

SAMPLE = r"""
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4);
	__type(key, __u32); __type(value, __u64); } array SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024);
	__type(key, __u32); __type(value, __u64); } hash SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1);
	__type(key, __u32); __type(value, __u32); } percpu SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_HASH); __uint(max_entries, 8);
	__type(key, __u32); __type(value, __u64); } percpu_hash SEC(".maps");
struct guarded { struct bpf_spin_lock lock; __u32 n; };
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8);
	__type(key, __u32); __type(value, struct guarded); } locked SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 2); __type(value, __u32); } queue SEC(".maps");

const volatile __u32 knob = 3;
const volatile __s16 signed_knob = -1;
const volatile __u64 wide_knob = 0;
const volatile _Bool flag_knob = 0;
const volatile __u32 list_knob[4] = {};

struct args { __u32 key; __u32 add; };

SEC("syscall")
int sum(struct args *args)
{
	__u32 key = args->key;
	__u64 value = knob + args->add + flag_knob + list_knob[3];

	bpf_map_update_elem(&hash, &key, &value, BPF_ANY);
	args->add = 77;
	return value;
}

SEC("syscall")
int knobs(void *ctx)
{
	return wide_knob == ~0ULL ? signed_knob : 1;
}

SEC("syscall")
int minus(void *ctx)
{
	return -22;
}

SEC("raw_tp/sched_switch")
int on_switch(void *ctx)
{
	__u32 zero = 0;
	__u32 *mine = bpf_map_lookup_elem(&percpu, &zero);
	__u64 *all = bpf_map_lookup_elem(&array, &zero);

	if (mine)
		*mine += 1;
	if (all)
		__sync_fetch_and_add(all, 1);
	return 0;
}
"""

REJECTED = r"""
SEC("raw_tp/sched_switch")
int wild(void *ctx)
{
	return *(volatile int *)0xdead;
}

SEC("raw_tp/sched_switch")
int fine(void *ctx)
{
	return 0;
}
"""


STRUCT_OPS = r"""
struct sock;
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	__u32 flags;
};

SEC("struct_ops")
__u32 quiet_ssthresh(__u64 *ctx) { return 2; }

SEC("struct_ops")
void quiet_cong_avoid(__u64 *ctx) { }

SEC("struct_ops")
__u32 quiet_undo_cwnd(__u64 *ctx) { return 2; }

SEC(".struct_ops.link")
struct tcp_congestion_ops quiet = {
	.ssthresh = (void *)quiet_ssthresh,
	.cong_avoid = (void *)quiet_cong_avoid,
	.undo_cwnd = (void *)quiet_undo_cwnd,
	.name = "gangd_quiet",
};
"""


@pytest.fixture(scope="session")
def compile_bpf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """compile_bpf(name, source) -> path of name.bpf.o."""
    clang = shutil.which("clang-19") or shutil.which("clang")
    if not clang:
        pytest.skip("no clang to compile BPF with")
    folder = tmp_path_factory.mktemp("bpf")
    multiarch = f"/usr/include/{platform.machine()}-linux-gnu"

    def build(name: str, source: str) -> Path:
        path = folder / f"{name}.bpf.o"
        command = [clang, "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-idirafter", multiarch, "-x", "c"]
        subprocess.run([*command, "-c", "-", "-o", path], input=HEAD + source, text=True, check=True)
        return path

    return build


@pytest.fixture(scope="session")
def sample(compile_bpf: Callable[[str, str], Path]) -> Path:
    """An object that this machine can load; a skip with the reason where it may not use bpf()."""
    core = pytest.importorskip("gangd.bpf._core", reason="build it: python3 setup.py build_ext --inplace")
    path = compile_bpf("sample", SAMPLE)
    with core.Object(path) as obj:
        try:
            obj.load()
        except core.BpfError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS):
                pytest.skip(f"bpf() is not for us here: {error}")
            raise
    return path


@pytest.fixture(scope="session")
def rejected(compile_bpf: Callable[[str, str], Path], sample: Path) -> Path:
    """An object whose program "wild" the verifier refuses."""
    return compile_bpf("rejected", REJECTED)


@pytest.fixture(scope="session")
def struct_ops(compile_bpf: Callable[[str, str], Path], sample: Path) -> Path:
    """A congestion control "gangd_quiet": registers as a scheduler does, and any kernel has it."""
    from gangd import bpf

    if not bpf.kernel_has_type("bpf_struct_ops_tcp_congestion_ops"):
        pytest.skip("this kernel has no struct_ops for TCP")
    return compile_bpf("quiet", STRUCT_OPS)


@pytest.fixture
def obj(sample: Path) -> "Iterator[Object]":
    """The sample, loaded."""
    from gangd.bpf import Object

    with Object(sample) as opened:
        opened.load()
        yield opened
