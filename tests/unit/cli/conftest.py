# SPDX-License-Identifier: Apache-2.0
"""The gangd that gangctl talks to."""

from __future__ import annotations

import pytest

from fakes import FakeService, guest, local_client, snapshot
from gangd.control import client as control
from gangd.model.domain import Mark

EVIL = "evil\x1b[31m\r\u202e"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """Return a service with guests that are marked, too big, called so, and shut off."""
    made = FakeService(
        snapshot(
            guest("web", 3, mark=Mark()),
            guest("big", 5, vcpus=9, mark=Mark()),
            guest(EVIL, 7, 1),
            guest("東京"),
        )
    )
    monkeypatch.setattr(control, "connect", lambda bus=None, timeout=0, **others: local_client(made))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return made
