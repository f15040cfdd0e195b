# SPDX-License-Identifier: Apache-2.0
"""kill -9 after every step of moving the threads of a real guest; with a host of files and every actuator:
tests/unit/actuate/test_crash.py."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libvirt")

from gangd.actuate.affinity import Affinity
from gangd.actuate.executor import Executor
from gangd.actuate.journal import Journal
from gangd.events.domain_reader import read_domain
from gangd.events.threads import thread_groups
from host.system.dbus_fixtures import ENV, ended

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(CPUS[:2] != [0, 1], reason="needs CPUs 0 and 1")


@pytest.fixture(scope="module")
def mortal() -> Iterator[Callable[..., int]]:
    """Runs one life of gangd; its exit status."""
    tests = Path(__file__).parents[2]
    started = subprocess.Popen([sys.executable, "-m", "host.system.mortal"], cwd=tests, env=ENV, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    with ended(started) as process:
        assert process.stdin is not None and process.stdout is not None
        to, back = process.stdin, process.stdout

        def live(*words: object) -> int:
            to.write(" ".join(map(str, words)) + "\n")
            to.flush()
            return int(back.readline())

        yield live


def state(dom: Any, root: Path) -> list[Any]:
    """Definition and affinities."""
    vcpus = read_domain(dom, root).vcpus
    return [dom.XMLDesc(), [os.sched_getaffinity(vcpu.tid or 0) for vcpu in vcpus]]


def test_killed_after_every_step(
    libvirtd: Any, conn: Any, define: Callable[..., Any], mortal: Callable[..., int], tmp_path: Path
) -> None:
    """A successor's undo restores the domain as it was, and leaves an empty journal."""
    dom = define()
    guest = read_domain(dom, libvirtd.root)
    os.sched_setaffinity(guest.vcpus[1].tid or 0, {1})
    before = state(dom, libvirtd.root)
    for last in itertools.count():
        journal = tmp_path / str(last)
        status = mortal(libvirtd.root, dom.UUIDString(), guest.pid, journal, last)
        report = Executor([Affinity(partial(thread_groups, root=libvirtd.root))], Journal(journal)).undo()
        assert report.failures == ()
        assert state(dom, libvirtd.root) == before, f"killed after step {last}"
        assert not Journal(journal).entries
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert last > 25
