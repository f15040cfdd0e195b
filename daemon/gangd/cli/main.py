# SPDX-License-Identifier: Apache-2.0
"""gangctl: the command line of gangd, shaped like virsh.

Errors go to stderr in two lines, what failed and why; with --json they are a
document on stdout. The exit status is 0 or 1, also for a command that cannot
be parsed, because that is what scripts around virsh expect; `advise` alone has
another one for an answer (docs/gangctl.md).
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from importlib import import_module

from gangd import __version__
from gangd.cli.command import Task, complain
from gangd.control.text import printable
from gangd.errors import GangError, InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Which module of this package has which commands: only that of the command that was given is imported.
MODULES = {
    "domain": ("mark", "set", "unmark", "list", "dominfo", "vcpuinfo"),
    "undo": ("undo",),
    "policy": ("policy-list", "policy-show"),
    "profile": ("profile-list",),
    "smt": ("smt",),
    "host": ("topology", "plan", "stats", "status"),
    "advise": ("advise",),
    "compare": ("compare",),
    "top": ("top",),
    "trace": ("trace",),
    "event": ("event",),
    "preflight": ("preflight",),
    "check": ("config-check",),
}
NAMES = tuple(name for names in MODULES.values() for name in names)
# `help` shows these together: a word for it, a title, the commands.
GROUPS = {
    "domain": ("Domains", ("mark", "set", "unmark", "undo", "vcpuinfo", "compare")),
    "monitor": ("Domain monitoring", ("list", "dominfo", "stats", "advise", "top", "trace", "event")),
    "policy": ("Policies", ("policy-list", "policy-show", "profile-list")),
    "host": ("The host", ("topology", "plan", "smt", "status", "preflight", "config-check")),
}
COMPLETE = "--complete"  # for the shell's completion, first on the line: what may stand for the last word


class _Formatter(HelpFormatter):
    """Asked for at every argument that is added: argparse's own would import shutil to find its width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """The terminal's width, as shutil.get_terminal_size() has it."""
    try:
        return int(os.environ["COLUMNS"]) or 80
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80 if sys.__stdout__ else 80
    except (OSError, ValueError):  # no terminal, or closed
        return 80


class _Parser(ArgumentParser):
    """Raises instead of exiting 2, so that a usage error is an error like any other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        cause = f"{printable(message)} (see '{self.prog} --help')"
        raise InvalidArgument(cause, "failed to parse the command")


def commands(only: str | None = None) -> list[Task]:
    """All commands, or the one that is called so."""
    found: list[Task] = []
    for module, names in MODULES.items():
        if only is None or only in names:
            found += import_module(f"gangd.cli.{module}").COMMANDS
    return [command for command in found if only in (None, command.name)]


def parser(only: str | None = None) -> ArgumentParser:
    """The parser of gangctl; also what documents and completion are made of. only: for one command."""
    shared = _shared_options()
    made = _Parser(
        prog="gangctl",
        description="Schedule the vCPUs of libvirt KVM guests together. Without a command: a prompt.",
        epilog=f"'gangctl help GROUP' shows a group of them: {', '.join(GROUPS)}.",
        parents=[shared],
        allow_abbrev=False,
    )
    made.add_argument("-v", "--version", action="version", version=f"gangctl {__version__}")
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in commands(only):
        sub = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            parents=[shared],
            allow_abbrev=False,
        )
        command.arguments(sub)
        sub.set_defaults(run=command)
    if only is None:
        helper = subparsers.add_parser(
            "help", help="show help, of one command or group, or in general", parents=[shared]
        )
        about = f"a command, or a group of them: {', '.join(GROUPS)}"
        topics = (*GROUPS, *NAMES, "help")
        helper.add_argument("topic", metavar="TOPIC", nargs="?", choices=topics, help=about)
    return made


def _named(words: Sequence[str]) -> str | None:
    """The command that `words` name, if they do before anything that asks for another parser."""
    _, rest = _shared_options().parse_known_args(words)
    return rest[0] if rest and rest[0] in NAMES else None


def _shared_options() -> _Parser:
    # SUPPRESS: the command's parser must not reset what was given before the command.
    shared = _Parser(prog="gangctl", add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    shared.add_argument("--json", action="store_true", help="print a JSON document (docs/json.md)")
    shared.add_argument("-q", "--quiet", action="store_true", help="print no headers")
    connect = "the libvirt that is meant; an error unless it is the one gangd works for"
    shared.add_argument("-c", "--connect", metavar="URI", help=connect)
    bus = "system, session or a D-Bus address (default: $GANGD_BUS, else system)"
    shared.add_argument("--bus", metavar="BUS", help=bus)
    return shared


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    _never_fail_to_print()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _print_no_more()
        return 1
    except OSError as error:
        _print_no_more()
        complain(GangError(error.strerror or str(error), "cannot write the output"), False)
        return 1
    except KeyboardInterrupt:
        return 1
    return code


def _print_no_more() -> None:
    """Drop the rest of the output, or Python complains at exit, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    """Run a command; or, as virsh does, several in one word, or those of a shell."""
    if words[:1] == [COMPLETE]:
        return _complete(words[1:])
    given = Namespace(json=False, quiet=False, connect=None, bus=None)
    try:
        shared, rest = _shared_options().parse_known_args(words, Namespace(**vars(given)))
    except GangError as error:
        complain(error, "--json" in words)
        return 1
    text = rest[0] if len(rest) == 1 and any(char in rest[0] for char in " ;\t\n") else None
    if rest and text is None:
        return execute(words, given)
    from gangd.cli import shell

    obeyed = shell.Shell(lambda command: execute(command, shared), shared)
    return obeyed.text(text) if text is not None else obeyed.run(parser())


def execute(words: Sequence[str], given: Namespace) -> int:
    """Run one command. `given`: the shared options, as far as `words` do not say otherwise."""
    as_json = given.json or "--json" in words
    try:
        args = parser(_named(words)).parse_args(words, Namespace(**vars(given)))
        as_json = args.json
        if args.command is None:
            parser().error("no command was given")
        if args.command == "help":
            return _help(args)
        command: Task = args.run
        try:
            return command.run(args)
        except GangError as error:
            raise error.during(command.failure(args))
    except SystemExit as done:  # argparse printed --help or --version
        return 1 if done.code else 0
    except GangError as error:
        complain(error, as_json)
        return 1


def _help(args: Namespace) -> int:
    if args.topic in GROUPS:
        print(_group(args.topic))
        return 0
    if args.topic:
        parser().parse_args([args.topic, "--help"])  # prints and raises SystemExit
    parser().print_help()
    return 0


def _group(keyword: str) -> str:
    """The commands of a group, as virsh shows one of its own."""
    title, names = GROUPS[keyword]
    lines = [f"    {name:<30} {commands(name)[0].summary}" for name in names]
    return "\n".join([f" {title} (help keyword '{keyword}'):", *lines])


def _complete(words: list[str]) -> int:
    from gangd.cli.complete import candidates

    for word in candidates(parser(), words):
        print(word)
    return 0


def _open_closed_streams() -> None:
    """Python has None for a stream whose descriptor is closed, and print(file=None) writes to another one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _never_fail_to_print() -> None:
    """A terminal that cannot show a letter gets it escaped rather than no output at all."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
