# SPDX-License-Identifier: Apache-2.0
"""gangctl imports what its command needs and no more: most of what a command takes is importing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gangd.cli.main import GROUPS, MODULES, NAMES, commands
from host.system.dbus_fixtures import ENV, fake_gangd, private_bus

# Each of them takes longer to import than a command takes; so does what brings them.
HEAVY = {"asyncio", "concurrent", "dataclasses", "inspect", "logging", "sdbus", "shutil", "socket", "ssl"}
HEAVY |= {"subprocess", "typing", "xml", "msgspec", "libvirt", "pathlib"}
COMMANDS = [
    ["status"],
    ["list", "--all"],
    ["dominfo", "web"],
    ["vcpuinfo", "web"],
    ["topology"],
    ["plan"],
    ["stats"],
    ["advise"],
    ["policy-list"],
    ["profile-list"],
    ["smt"],
    ["mark", "db", "--live"],
    ["set", "db", "--weight", "5"],
    ["unmark", "db"],
]
RUN = """
import json, sys
before = set(sys.modules)
from gangd.cli.main import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(set(sys.modules) - before)]))
"""


def test_the_table_of_commands_is_true() -> None:
    """A look-up by name finds that command alone, and the table has the order that --help shows."""
    assert tuple(command.name for command in commands()) == NAMES
    for name in NAMES:
        assert [command.name for command in commands(name)] == [name]
    assert sorted(name for _, names in GROUPS.values() for name in names) == sorted(NAMES)
    assert not set(GROUPS) & set(NAMES)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bus")
    with private_bus(folder) as (found, _), fake_gangd(found, folder / "gangd.log"):
        yield found


def imported(address: str, words: list[str]) -> set[str]:
    """Return the modules that one gangctl imported, up to its end."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={**ENV, "GANGD_BUS": address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0, done.stdout
    return set(modules)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_imports_nothing_heavy(address: str, words: list[str]) -> None:
    """Neither an event loop nor what makes the daemon's values, and of gangctl its own module alone."""
    found = imported(address, words)
    assert not {name.partition(".")[0] for name in found} & HEAVY
    assert "argparse" in found, "the list of modules is not the whole"
    own = {module for module, names in MODULES.items() if words[0] in names}
    # Where others take a function from: smt and host from domain.
    own |= {"domain"} if own & {"smt", "host"} else set()
    assert {module for module in MODULES if f"gangd.cli.{module}" in found} == own


def test_heavy_is_heavy() -> None:
    """The counter-test: the list of modules sees what the daemon's side of control imports."""
    code = "import sys, gangd.control.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True, check=True)
    assert {"asyncio", "dataclasses", "sdbus", "typing"} <= set(done.stdout.split())
