# SPDX-License-Identifier: Apache-2.0
"""The text of a log record, and the fields that the journal gets beside it."""

from __future__ import annotations

import io
import logging
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, SOCK_DGRAM, socket

import pytest

from fakes import guest, host, planned
from gangd import logs
from gangd.model.domain import Mark, Mode
from gangd.model.plan import Plan, Refusal

EVIL = "web\nPRIORITY=0\x1b[31m\u202e'"
JOURNAL = Path("/run/systemd/journal/socket")


def test_a_name_cannot_make_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr a record is one line of printable text, whatever a name holds; a traceback stays whole."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs._Formatter("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning("domain '%s' is gone\tnow", EVIL)
    try:
        raise RuntimeError("inner")
    except RuntimeError:
        log.exception("failed")
    first, second, *traceback = stream.getvalue().splitlines()
    assert first.startswith("WARNING domain 'web\\x0aPRIORITY=0\\x1b[31m") and first.isprintable()
    assert second == "ERROR failed"
    assert traceback[0].startswith("Traceback") and traceback[-1] == "RuntimeError: inner"


def test_fields_carry_the_name_as_it_is() -> None:
    """For who searches by it; only what is not text is replaced."""
    evil = guest(EVIL)
    fields = {"GANGD_EVENT": "marked", "GANGD_DOMAIN": EVIL, "GANGD_UUID": evil.uuid}
    assert logs.about("marked", evil) == fields
    assert logs.about("refused", guest("\ud800"))["GANGD_DOMAIN"] == "?"
    assert logs.about("connected") == {"GANGD_EVENT": "connected"}


def test_a_failure_is_about_the_one_domain_it_names() -> None:
    """Named by UUID or in quotes; a name that quotes another's blames nobody."""
    web, db, trap = guest("web"), guest("db"), guest("x' of 'db")
    assert logs.subject("the pin of vCPU 1 of 'web' reads back 3", [web, db]) is web
    assert logs.subject(f"the gang of {db.uuid}", [web, db]) is db
    assert logs.subject("cannot write the journal", [web, db]) is None
    assert logs.subject("web", [web]) is None
    assert logs.subject("vCPU 1 of 'x' of 'db'", [web, db, trap]) is None


def test_news_of_a_plan() -> None:
    """A gang that comes, one that goes, one that is refused: each once."""
    web, db = guest("web", 1, mark=Mark()), guest("db", 2, mark=Mark())
    before, now = planned((web,), host()), planned((db,), host())
    refused = Plan(now.caches, now.gangs, (Refusal(web.uuid, "web", "too wide"),))
    found = [(fields["GANGD_EVENT"], fields["GANGD_DOMAIN"]) for _, fields in logs.news(before, refused)]
    assert found == [("gang", "db"), ("no-gang", "web"), ("refused", "web")]
    assert list(logs.news(refused, refused)) == []
    other = replace(now, gangs=tuple(replace(gang, mode=Mode.BALANCE, reason="why") for gang in now.gangs))
    ((sentence, fields),) = logs.news(now, other)
    assert (sentence, fields["GANGD_EVENT"]) == ("domain 'db' is balance now: why", "mode")


def test_the_journal_is_where_stderr_leads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$JOURNAL_STREAM names the very stream; what was inherited and led elsewhere since is none."""
    with (tmp_path / "stream").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        found = os.fstat(stream.fileno())
        for text, expected in (
            (f"{found.st_dev}:{found.st_ino}", True),
            (f"{found.st_dev}:{found.st_ino + 1}", False),
            ("", False),
            ("x:y", False),
        ):
            monkeypatch.setenv("JOURNAL_STREAM", text)
            assert logs.to_journal() is expected


SENDER = """
import logging, os, sys
found = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
from gangd import logs
from fakes import guest
logs.setup("gangd")
logging.getLogger("gangd").warning("about '%s'", sys.argv[1], extra=logs.about("marked", guest(sys.argv[1])))
"""


def fields(message: bytes) -> dict[str, bytes]:
    """An entry in the journal's native protocol: NAME=VALUE, or NAME, a 64-bit length and the value."""
    found = {}
    while message:
        line, _, rest = message.partition(b"\n")
        name, separator, value = line.partition(b"=")
        if not separator:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        found[name.decode()] = value
        message = rest
    return found


def test_a_journal_entry_is_what_was_meant(tmp_path: Path) -> None:
    """Over the journal's own socket: a name with a newline and a forged field is one value of one field."""
    pytest.importorskip("systemd.journal")
    if os.geteuid() != 0 or JOURNAL.exists():
        pytest.skip("needs root and a machine without a journal, whose place it takes")
    JOURNAL.parent.mkdir(parents=True, exist_ok=True)
    with socket(AF_UNIX, SOCK_DGRAM) as server:
        server.bind(str(JOURNAL))
        server.settimeout(20)
        try:
            subprocess.run(
                [sys.executable, "-c", SENDER, EVIL],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                check=True,
            )
            entry = fields(server.recv(1 << 20))
        finally:
            JOURNAL.unlink()
    assert entry["GANGD_DOMAIN"] == EVIL.encode()
    assert entry["GANGD_EVENT"] == b"marked"
    assert entry["PRIORITY"] == b"4"
    assert entry["SYSLOG_IDENTIFIER"] == b"gangd"
    assert entry["MESSAGE"].startswith(b"about 'web\\x0aPRIORITY=0")
