# SPDX-License-Identifier: Apache-2.0
"""A marked guest moves from one host to another: two real libvirtds, each in namespaces of its own, a gangd's
source and executor beside each."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")
from gangd.actuate.affinity import Affinity  # noqa: E402
from gangd.actuate.executor import Executor  # noqa: E402
from gangd.actuate.journal import Journal  # noqa: E402
from gangd.events import loop  # noqa: E402
from gangd.events.reading import read_domain  # noqa: E402
from gangd.events.threads import thread_groups  # noqa: E402
from gangd.model.domain import Mark  # noqa: E402
from gangd.model.state import State  # noqa: E402
from gangd.policy import load_policies, make_plan  # noqa: E402
from system.conftest import GUEST, Libvirtd  # noqa: E402
from system.test_libvirt_pins import running  # noqa: E402

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
MARK = '<gangd:gang xmlns:gangd="urn:gangd:domain:1" policy="relaxed" weight="300"/>'


@pytest.fixture
def hosts() -> Iterator[list[Libvirtd]]:
    """Two, which do not take each other for themselves."""
    loop.start()
    made: list[Libvirtd] = []
    folders = [tempfile.TemporaryDirectory(prefix="gangd-") for _ in range(2)]
    try:
        for folder in folders:
            made.append(Libvirtd(Path(folder.name), "[]"))
            with (Path(folder.name) / "libvirtd.conf").open("a") as conf:
                conf.write(f'host_uuid = "{uuid.uuid4()}"\n')
            made[-1].start()
        yield made
    finally:
        for daemon in made:
            daemon.close()
        for folder in folders:
            folder.cleanup()


def runs(state: State) -> bool:
    return any(domain.running for domain in state.domains.values())


def migrate(dom: Any, target: Any, way: Path) -> Any:
    """Live, over a socket that both hosts see."""
    flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_UNSAFE
    return dom.migrate3(target, {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{way}"}, flags)


def test_the_mark_travels_and_the_other_side_schedules_it(hosts: list[Libvirtd], tmp_path: Path) -> None:
    """Here it was a gang, which is forgotten; there it is one, on CPUs of that host, and its definition says
    nothing of either."""
    here, there = (libvirt.open(host.uri) for host in hosts)
    identity = str(uuid.uuid4())
    emulator = shutil.which("qemu-system-x86_64")
    text = GUEST.format(name="traveller", uuid=identity, metadata=MARK, emulator=emulator)
    dom = here.createXML(text)
    policies = load_policies()

    async def body() -> None:
        async with running(hosts[0]) as left, running(hosts[1]) as right:
            sides = [
                Executor([Affinity(partial(thread_groups, root=host.root))], Journal(tmp_path / name))
                for host, name in zip(hosts, ("left", "right"), strict=True)
            ]
            plan = make_plan(left.state, {}, policies)
            assert [gang.name for gang in plan.gangs] == ["traveller"], plan
            assert sides[0].reconcile(plan).failures == ()
            assert len(sides[0].journal.entries) == 2
            await asyncio.to_thread(migrate, dom, there, hosts[1].directory / "way")
            await right.until(
                lambda: identity in right.state.domains and right.state.domains[identity].running
            )
            await left.until(lambda: identity not in left.state.domains)
            assert right.state.domains[identity].mark == Mark("relaxed", 300)
            assert make_plan(left.state, {}, policies).gangs == ()
            assert sides[0].reconcile(make_plan(left.state, {}, policies)).failures == ()
            assert not sides[0].journal.entries
            plan = make_plan(right.state, {}, policies)
            assert [gang.name for gang in plan.gangs] == ["traveller"], plan
            assert sides[1].reconcile(plan).failures == ()
            moved = there.lookupByUUIDString(identity)
            found = {
                vcpu.index: os.sched_getaffinity(vcpu.tid or 0)
                for vcpu in read_domain(moved, hosts[1].root).vcpus
            }
            assert found == {place.vcpu: {place.cpu} for place in plan.gangs[0].placements}
            assert "cputune" not in moved.XMLDesc()
            assert sides[1].undo().failures == ()

    try:
        asyncio.run(body())
    finally:
        for conn in (here, there):
            for left in conn.listAllDomains():
                left.destroy()
