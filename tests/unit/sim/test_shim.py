# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for libbpf and for the kernel's functions behave as those do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsim.engine import HELPER, Engine
from gangsim.errors import Ejected
from gangsim.scenario import Group, Host, Scenario, Task

PROGRAM = Path(__file__).with_name("shim.bpf.c")


def test_maps_loops_reads_and_iterators(folder: Path) -> None:
    """The program in shim.bpf.c finds everything as it should be; it names what is not."""
    group = Group("mine", weight=50, parent="system", cpus=0.5)
    task = Task("hog", count=5, cpus=(0,), group="mine")
    scenario = Scenario("shim", Host(2, 1, 2), (), 0.1, tasks=(task,), groups=(group,))
    run = Engine(folder, HELPER, PROGRAM).run(scenario, "gang")
    # it runs the last of its queue, ever again
    assert run.host["switches"] > 3


def test_an_error_of_the_scheduler_has_its_words(folder: Path) -> None:
    """scx_bpf_error() ends the simulation, with what it was given to print."""
    scenario = Scenario("shim", Host(2, 1, 2), (), 0.1, tasks=(Task("hog"),))
    with pytest.raises(Ejected) as error:
        Engine(folder, HELPER, PROGRAM, "-DCOMPLAIN").run(scenario, "gang")
    assert str(error.value).endswith("scx_bpf_error: 7 of -1, so: 0x000000ff, 100%")
