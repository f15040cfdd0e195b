# SPDX-License-Identifier: Apache-2.0
"""The command line of tests/lab/run."""

import argparse
import os
import signal
import sys
from pathlib import Path

from lab import bochsvm, kernels
from lab.errors import LabError
from lab.paths import REPO
from lab.qemu import Clock
from lab.session import Options, boot

# EX_UNAVAILABLE, as vmtest has it: the lab failed, which says nothing about the command.
NO_VERDICT = 69

USAGE = """\
tests/lab/run --kernel ROW [options] -- COMMAND...
       tests/lab/run --list"""
EPILOG = """\
One word of COMMAND is run by sh, several are a program and its arguments. The exit status is COMMAND's,
or 69 if the VM never gave a verdict."""


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    # A terminated run must end its VM: turn the signal into an exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if options.list:
            return _list()
        return _run(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return NO_VERDICT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run",
        usage=USAGE,
        epilog=EPILOG,
        description="Boot a kernel in the lab and run a command in it as root.",
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the kernels the lab knows")
    add("--kernel", metavar="ROW", help="which kernel of kernels.toml to boot")
    add("--smp", type=int, default=2, metavar="N", help="number of CPUs, in SMT pairs when even (2)")
    add("--memory", type=int, default=4096, metavar="MB", help="memory (4096)")
    add("--clock", type=Clock, default=Clock.REAL, metavar="CLOCK",
        help="real, or virtual: counted in instructions, whatever else the machine does (real)")  # fmt: skip
    add("--share", type=_visible, metavar="DIR", help="directory to appear as /share in the VM, writable")
    add("--timeout", type=float, metavar="S", help="give up after so many seconds (300; none if interactive)")
    add("--append", default="", metavar="ARGS", help="words for the kernel command line")
    add("--bare", action="store_true", help="no systemd: the command runs seconds after power-on")
    add("--console", type=_visible, metavar="FILE", help="where to write the kernel's console")
    add("--no-project", action="store_true", help="do not install the project into the VM")
    add(
        "--interactive", action="store_true", help="connect the terminal; COMMAND may be left out for a shell"
    )
    add("command", nargs="*", metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def _run(options: argparse.Namespace) -> int:
    if not options.kernel:
        raise LabError("cannot boot: name a kernel with --kernel (--list shows them)")
    command = options.command or (["bash", "-l"] if options.interactive else [])
    if not command:
        raise LabError("cannot boot: there is no command to run (put it after --)")
    forever = float("inf") if options.interactive else 300.0
    if kernels.row(options.kernel).machine == "bochs":
        return _run_on_bochs(options, command)
    settings = Options(
        smp=options.smp,
        memory=options.memory,
        share=options.share,
        timeout=options.timeout or forever,
        append=options.append,
        bare=options.bare,
        console=options.console,
        project=not options.no_project,
        interactive=options.interactive,
        clock=options.clock,
    )
    return boot(options.kernel, command, settings, stream=sys.stdout.buffer).status


def _run_on_bochs(options: argparse.Namespace, command: list[str]) -> int:
    if options.share or options.interactive:
        raise LabError(
            f"cannot boot kernel {options.kernel} like this: on Bochs there is no share and no terminal"
        )
    settings = bochsvm.Options(timeout=options.timeout or bochsvm.Options.timeout, console=options.console)
    return bochsvm.boot(options.kernel, command, settings, stream=sys.stdout.buffer).status


def _visible(given: str) -> Path:
    """A path as the caller wrote it, outside the toolbox perhaps, as seen from here."""
    outside = os.environ.get("LAB_OUTSIDE_REPO")
    if outside is None:
        return Path(given).absolute()
    path = Path(os.path.normpath(Path(os.environ["LAB_OUTSIDE_CWD"], given)))
    if not path.is_relative_to(outside):
        raise argparse.ArgumentTypeError(
            f"{given} lies outside the repository, where the toolbox cannot see it"
        )
    return REPO / path.relative_to(outside)


def _list() -> int:
    heading = ["KERNEL", "SUITE", "PREPARED", "SCHED_EXT", "KICK_CPU", "PAUSE_EXITS", "KVM", "NOTE"]
    table = [heading]
    for row in kernels.rows().values():
        features = row.features
        flags = [features.sched_ext, features.kick_cpu, features.pause_exits, features.kvm]
        note = row.apart or ""
        version = kernels.prepared_version(row) or "-"
        table.append([row.name, row.suite, version, *("yes" if flag else "no" for flag in flags), note])
    widths = [max(len(line[column]) for line in table) for column in range(len(heading) - 1)]
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print("  ".join([*cells, line[-1]]).rstrip())
    return 0
