# SPDX-License-Identifier: Apache-2.0
"""The recorder on the kernel that runs here."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from gangd import bpf
from gangd.bpf import abi
from gangd.errors import GangError
from gangd.trace.recorder import record
from gangd.trace.timeline import build

NAPS = "import time\nwhile True: time.sleep(0.002)"


@pytest.fixture
def able() -> None:
    """Skip where this machine does not let us use bpf()."""
    with bpf.Object(bpf.object_path("trace")) as programs:
        for name in ("trace_exit", "trace_yield"):
            programs.set_autoload(name, False)
        try:
            programs.load()
        except bpf.BpfError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS):
                pytest.skip(f"bpf() is not for us here: {error}")
            raise


@pytest.fixture
def napper() -> Iterator[int]:
    """A process that runs for a moment 500 times a second."""
    process = subprocess.Popen([sys.executable, "-c", NAPS])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.usefixtures("able")
def test_a_thread_that_naps(napper: int) -> None:
    """Only the napper's naps are seen, and the counts of runs and waits agree with the kernel's."""
    told: list[tuple[float, int]] = []
    found = record([napper, 1 << 22], 1.0, lambda past, size: told.append((past, size)))
    assert found.lost == 0 and {event.id for event in found.events} == {napper}
    timeline = build(found, {napper: (0, 0)})
    assert timeline.length == pytest.approx(1e6, rel=0.5)
    assert len(timeline.runs) > 50
    assert told[0][0] < told[-1][0] < 1.0 and told[-1][1] > 0
    assert "turns: no gang scheduler is loaded" in found.missing


@pytest.mark.usefixtures("able")
def test_turns_are_those_of_the_scheduler(napper: int) -> None:
    """The scheduler's maps are found by their shape; its turns come into the recording, each once."""
    with bpf.Object(bpf.object_path("trace")) as scheduler:  # its maps have the same shape
        for name in ("trace_exit", "trace_yield"):
            scheduler.set_autoload(name, False)
        scheduler.load()
        member = abi.GangMember(tgid=napper, gang=7, vcpu=0)
        scheduler.map("members").update(struct.pack("=I", napper), member.pack())

        ring = abi.GangDecisions()

        def open_turn(*_: object) -> None:
            """Open three, while it records."""
            if ring.next < 3:
                now = time.monotonic_ns()
                ring.last[ring.next] = abi.GangDecision(time=now, gang=7, kind=1, length_us=3000)
                ring.next += 1
                scheduler.map("decisions").update(struct.pack("=I", 0), ring.pack())

        found = record([napper], 1.0, open_turn)
    assert found.gangs == {napper: 7}
    assert sum(event.kind == abi.TraceKind.TURN for event in found.events) == 3
    assert not any("turns" in text for text in found.missing)
    assert len(build(found, {napper: (0, 0)}).turns) == 3


def test_only_root_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user reads one sentence; root reads what the kernel said."""
    refusal = bpf.BpfError(errno.EPERM, "trace: load: Operation not permitted")
    monkeypatch.setattr(bpf, "Object", Mock(side_effect=refusal))
    for user, cause in ((1000, "only root may record"), (0, "trace: load")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(GangError, match=cause):
            record([os.getpid()], 0.1)
