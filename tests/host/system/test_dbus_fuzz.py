# SPDX-License-Identifier: Apache-2.0
"""Thousands of calls by a user without rights: every one is answered in words, and nothing happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangd.control.client import Client
from host.system.dbus_fixtures import ENV, NOBODY, FakeDaemon

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the policy lets only root own the name")

EXAMPLES = 1500  # of two calls each
DENIED = "org.gangd.Gangd1.Error.AccessDenied"


@pytest.mark.parametrize("user", [NOBODY, 0])
def test_anything_is_answered(
    address: str, daemon: FakeDaemon, client: Client, tmp_path: Path, user: int
) -> None:
    """By nobody, who changes nothing, and by root, for whom our own code checks the arguments."""
    before = [{**d, "corun_seconds": 0} for d in client.domains(True)["domains"]]
    command = [sys.executable, str(Path(__file__).with_name("fuzz_caller.py")), address, str(EXAMPLES)]
    done = subprocess.run(
        command, env=ENV, capture_output=True, text=True, timeout=300, user=user, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["calls"] >= 2 * EXAMPLES and told["seen"]["reply"] > EXAMPLES / 10, told
    assert (DENIED in told["seen"]) == (user == NOBODY), told
    if user == NOBODY:
        assert [{**d, "corun_seconds": 0} for d in client.domains(True)["domains"]] == before
    else:
        assert told["seen"]["org.gangd.Gangd1.Error.InvalidArgument"] > EXAMPLES / 10, told
    assert client.status()["schema"] == 1
    log = (tmp_path / "gangd.log").read_text()
    assert "Traceback" not in log, log[-4000:]
