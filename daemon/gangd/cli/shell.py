# SPDX-License-Identifier: Apache-2.0
"""Commands that are not on gangctl's command line: at a prompt, from a pipe, or several in one word.

They are written as for virsh: words, quotes and backslashes as in a shell, `;` between commands,
`#` for the rest of a line.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from pathlib import Path

from gangd.cli.command import complain
from gangd.cli.complete import candidates
from gangd.control.text import printable
from gangd.errors import InvalidArgument

WELCOME = "Type:  'help' for help with commands\n       'quit' to quit\n"
LEAVE = ("quit", "exit")
HISTORY_LINES = 500


class Shell:
    """execute: runs one command, prints also its errors, returns its exit status.
    args: the options that were given before any command."""

    def __init__(self, execute: Callable[[list[str]], int], args: Namespace) -> None:
        self._execute = execute
        self._args = args
        self._failed = False
        self._left = False

    def text(self, text: str) -> int:
        """Obey what a text says; the exit status. A command that fails does not end it."""
        self._lines(text.splitlines())
        return int(self._failed)

    def run(self, parser: ArgumentParser) -> int:
        """Obey standard input: with a prompt when it is a terminal."""
        if sys.stdin.isatty() and sys.stdout.isatty():
            self._prompt(parser)
            return 0
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # as the words of a command line
        self._lines(sys.stdin)
        return int(self._failed)

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._obey(line)
            if self._left:
                return

    def _obey(self, line: str) -> None:
        try:
            commands = split(line)
        except InvalidArgument as error:
            complain(error, self._args.json)
            self._failed = True
            return
        for words in commands:
            if len(words) == 1 and words[0] in LEAVE:
                self._left = True
                return
            self._failed |= self._execute(words) != 0
            sys.stdout.flush()

    def _prompt(self, parser: ArgumentParser) -> None:
        import readline

        completer = _completer(parser, self._args.bus, readline.get_line_buffer, readline.get_begidx)
        readline.set_completer(completer)
        readline.set_completer_delims(" \t\n;")
        readline.parse_and_bind("tab: complete")
        history = _load_history()
        if not self._args.quiet:
            print(WELCOME)
        prompt = "gangctl # " if os.geteuid() == 0 else "gangctl > "
        while not self._left:
            try:
                self._obey(input(prompt))
            except EOFError:
                print()
                break
            except KeyboardInterrupt:
                print()
        _save_history(history)


def split(line: str) -> list[list[str]]:
    """The commands of a line, each as its words. Raises InvalidArgument for a quote that is not closed."""
    commands: list[list[str]] = [[]]
    word: str | None = None
    quote = ""
    chars = iter(line)
    for char in chars:
        if char == "\\" and quote != "'":
            word = (word or "") + next(chars, "")
        elif quote:
            word, quote = (word, "") if char == quote else ((word or "") + char, quote)
        elif char in "'\"":
            word, quote = word or "", char
        elif char == "#" and word is None:
            break
        elif char == ";" or char.isspace():
            commands[-1] += [] if word is None else [word]
            commands += [[]] if char == ";" else []
            word = None
        else:
            word = (word or "") + char
    if quote:
        raise InvalidArgument(f"missing {quote}", "failed to parse the command")
    commands[-1] += [] if word is None else [word]
    return [command for command in commands if command]


def _completer(
    parser: ArgumentParser, bus: str | None, line: Callable[[], str], begin: Callable[[], int]
) -> Callable[[str, int], str | None]:
    """readline's question: the n-th candidate for a text, None after the last."""
    found: list[str] = []

    def complete(text: str, number: int) -> str | None:
        if number == 0:
            before = line()[: begin()].rpartition(";")[2].split()
            found[:] = candidates(parser, [*before, text], bus)
            found.extend(word for word in LEAVE if not before and word.startswith(text))
        # With a space behind it, a word that is the only one is finished.
        return found[number] + " " * (len(found) == 1) if number < len(found) else None

    return complete


def history_file() -> Path | None:
    """Return the file that keeps lines from one prompt to the next; None without a home."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        base = state if state.is_absolute() else Path.home() / ".local/state"
    except RuntimeError:
        return None
    return base / "gangctl/history"


def _load_history() -> Path | None:
    """Load the history and return where to save it later; None when there is no such place."""
    import readline

    file = history_file()
    if file is None:
        return None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
        readline.read_history_file(file)
    except OSError as error:
        print(f"no history is kept: {printable(str(file))}: {error.strerror}", file=sys.stderr)
        return None
    return file


def _save_history(file: Path | None) -> None:
    import readline

    if file is None:
        return
    readline.set_history_length(HISTORY_LINES)
    try:
        readline.write_history_file(file)
        file.chmod(0o600)
    except OSError as error:
        print(f"no history is kept: {printable(str(file))}: {error.strerror}", file=sys.stderr)
