# SPDX-License-Identifier: Apache-2.0
"""gangctl on a terminal of its own, with a FakeService behind it, as a process."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DAEMON = Path(__file__).resolve().parents[3] / "daemon"
PROGRAM = """
import sys
from gangd.cli.main import main
from gangd.control import client
from gangd.model.domain import Mark
from fakes import FakeService, guest, local_client, snapshot

class Service(FakeService):
    async def measured(self):
        await self.refresh()
        return self.snapshot()

guests = guest("web", 3, mark=Mark()), guest("evil\\x1b[31m", 7, 1), guest("\\u6771\\u4eac", 8)
service = Service(snapshot(*guests))
client.connect = lambda bus=None, timeout=0, **others: local_client(service)
sys.exit(main())
"""
SECONDS = 20.0


class Terminal:
    """A program at a terminal: `text` is its unread output, `code` its exit status once it has ended."""

    def __init__(self, child: int, screen: int) -> None:
        self.child = child
        self.screen = screen
        self.text = ""
        self.code: int | None = None

    def wait_for(self, pattern: str, again: str = "") -> str:
        """Return the output up to and with `pattern`, and take it off `text`.

        again: keys to type every second meanwhile: readline notices a signal only while it waits.
        """
        deadline = time.monotonic() + SECONDS
        due = time.monotonic()
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            assert self.code is None, f"ended without {pattern!r}: {self.text!r}"
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text!r}"
            if again and time.monotonic() >= due:
                self.send(again)
                due += 1.0
            self._read()
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def send(self, keys: str) -> None:
        """Type `keys`."""
        os.write(self.screen, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Make the terminal larger or smaller; the kernel tells the program."""
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """The exit status, when the program has ended by itself."""
        deadline = time.monotonic() + SECONDS
        while self.code is None:
            assert time.monotonic() < deadline, f"still there: {self.text!r}"
            self._read()
        return self.code

    def _read(self) -> None:
        ready, _, _ = select.select([self.screen], [], [], 0.1)
        try:
            self.text += os.read(self.screen, 65536).decode(errors="replace") if ready else ""
        except OSError:  # EIO: nobody has the other side any more
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@contextmanager
def gangctl(
    *words: str, size: tuple[int, int] = (24, 100), env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """gangctl with these words on its command line, ended with the block."""
    variables = {"PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8", "HOME": "/dev/null"}
    variables |= {
        "PYTHONPATH": f"{DAEMON}:{DAEMON.parent / 'policies'}:{DAEMON.parent / 'tests'}",
        **(env or {}),
    }
    child, screen = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs the tests may have it ignored, as nohup does
        os.execve(sys.executable, [sys.executable, "-c", PROGRAM, *words], variables)
    terminal = Terminal(child, screen)
    try:
        yield terminal
    finally:
        if terminal.code is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(screen)
