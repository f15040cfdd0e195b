# SPDX-License-Identifier: Apache-2.0
"""Checks of core scheduling on a kernel that has it: beside a scheduler in BPF it hangs the host
(decision 48), so that whichever is first keeps the other out."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gangd import bpf
from gangd.actuate import preflight, sched_ext
from gangd.actuate.backend import LoadFailed
from gangd.model.topology import Topology
from vm.checks.inside import host
from vm.checks.inside.check import note, run, wait_for
from vm.checks.inside.threads import cpu_shares, spinning

PR_SCHED_CORE = 62
GET, CREATE, SHARE_TO, SHARE_FROM = range(4)
PROCESS = 1  # all threads of it
ASK = f"""
import ctypes
print(ctypes.CDLL(None).prctl({PR_SCHED_CORE}, {CREATE}, 0, {PROCESS}, 0), flush=True)
input()
"""
SECONDS = 5.0


def check_a_cookie_keeps_the_scheduler_out() -> None:
    """While a process runs under core scheduling no scheduler is loaded, and the refusal names the process;
    nothing of the attempt is left, and once it is gone the scheduler loads."""
    assert preflight.hangs_beside_cookies(bpf)
    with asking() as (process, answer):
        assert answer == 0, "the kernel gives no cookie: the check would prove nothing"
        try:
            load().close()
        except LoadFailed as refusal:
            note(str(refusal))
            comm = Path(f"/proc/{process.pid}/comm").read_text().strip()
            assert str(refusal) == f"{comm}[{process.pid}] {sched_ext.HANGS}"
        else:
            raise AssertionError("the scheduler was loaded beside a cookie")
        assert host.scheduler() == "disabled"
        wait_for(lambda: not host.our_programs(), 5, "the kernel frees the programs")
    load().close()


def check_the_scheduler_keeps_cookies_out() -> None:
    """While the scheduler is loaded nobody gets a cookie, by whichever command: the call fails with EBUSY
    and is counted; tasks run on, and the kernel's own answers to other commands and calls stay."""
    with contextlib.closing(load()) as loaded, spinning("one", 0, 1) as one, spinning("two", 2, 3) as two:
        codes = [ask(command) for command in (CREATE, SHARE_TO, SHARE_FROM)]
        with asking() as (_, answer):
            assert answer == -1
        cookie = ctypes.c_uint64(1)
        assert prctl(PR_SCHED_CORE, GET, 0, 0, ctypes.byref(cookie)) == 0 and cookie.value == 0
        assert prctl(PR_SCHED_CORE, 99, 0, 0, 0) == errno.EBUSY
        name = ctypes.create_string_buffer(16)
        assert prctl(16, name, 0, 0, 0) == 0 and name.value  # PR_GET_NAME
        shares = cpu_shares([(group.pid, tid) for group in (one, two) for tid in group.tids], SECONDS)
        note(f"{codes}; CPUs of four tasks on four: {', '.join(f'{share:.2f}' for share in shares)}")
        assert codes == [errno.EBUSY] * 3
        assert loaded.counters()["cookies_refused"] == 5
        assert loaded.ejected() is None and min(shares) > 0.9
    with asking() as (_, answer):
        assert answer == 0, "the scheduler is gone, and the call still fails"


def check_the_verifier_is_asked_about_the_refusal() -> None:
    """Preflight loads and attaches it for a moment, and leaves nothing."""
    assert sched_ext.verify() is None
    wait_for(lambda: not host.our_programs(), 5, "the kernel frees the programs")
    assert ask(CREATE) == 0


def load() -> sched_ext.Scheduler:
    """Load the scheduler."""
    return sched_ext.Scheduler(Topology.read(Path("/")))


def prctl(*arguments: object) -> int:
    """Return 0, or the errno of the call."""
    library = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if library.prctl(*arguments) else 0


def ask(command: int) -> int:
    """Ask for a cookie, for a process that ends: this one must have none. Return 0, or the errno."""
    child = os.fork()
    if not child:
        os._exit(prctl(PR_SCHED_CORE, command, 0, PROCESS, 0))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def asking() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process that asks for a cookie, and lives on with the call's answer while the body runs."""
    command = [sys.executable, "-c", ASK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()
    time.sleep(0.1)  # its last thread is gone


if __name__ == "__main__":
    run(__file__, dict(globals()), ("check_",))
