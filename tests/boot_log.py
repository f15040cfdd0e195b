# SPDX-License-Identifier: Apache-2.0
"""The notes that the summary of a test session is made of, by whichever process knows them.

With pytest-xdist the tests run in processes of their own: each adds lines to one file, and the process that
prints the summary reads it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "GANGD_TEST_LEDGER"


def begin(path: Path) -> None:
    """An empty ledger, for this process and all it starts."""
    path.write_text("")
    os.environ[VARIABLE] = str(path)


def note(kind: str, **entry: Any) -> None:
    """Add an entry; outside a session nobody asks for it."""
    if path := os.environ.get(VARIABLE):
        line = json.dumps({"kind": kind, **entry}) + "\n"
        # One write at the end of the file: lines of two processes do not mix.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def entries(kind: str) -> list[dict[str, Any]]:
    """Everything of a kind that was noted, in order."""
    path = os.environ.get(VARIABLE)
    lines = Path(path).read_text().splitlines() if path else []
    return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]
