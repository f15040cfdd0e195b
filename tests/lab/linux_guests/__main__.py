# SPDX-License-Identifier: Apache-2.0
"""Outside the VMs: one for each kernel, mode and time, and a line for each kernel and mode at the end."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vm import kernels
from vm.cli import NO_VERDICT
from vm.errors import LabError
from vm.paths import LAB, REPO
from vm.session import Options, boot

from linux_guests import initrd
from linux_guests.guest import NAMES

BUILD = REPO / "build"
DEBIAN = Path("/usr/bin/qemu-system-x86_64")
MODES = ("unpinned", "gang")
CPUS = 2
AROUND_SECONDS = 1800.0  # boot, the guests' boot, marking


@dataclass(frozen=True)
class Case:
    """One run. number: which of the times."""

    kernel: str
    mode: str
    number: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.mode} {self.number}"


class Progress:
    """A stream that puts the case before every line, on stderr."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._rest = b""

    def write(self, data: bytes) -> int:
        """Whole lines only."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            print(f"{self._case}: {line.decode(errors='replace')}", file=sys.stderr, flush=True)
        return len(data)

    def flush(self) -> None:
        """Flush our error output."""
        sys.stderr.flush()


def main() -> int:
    """0 when every guest lived every time, or one died in the counter-test; 69 when the lab could not."""
    options = _parser().parse_args()
    # At once, and the VMs with us (setpriv --pdeathsig); an exception would wait for the pool's threads.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda found, _: os._exit(128 + found))
    if options.counter:
        options.kernels, options.modes, options.times = options.kernels.split(",")[0], "unpinned", 1
        options.emulator = options.emulator or DEBIAN
    cases = [
        Case(kernel, mode, number + 1)
        for number, kernel, mode in itertools.product(
            range(options.times), options.kernels.split(","), options.modes.split(",")
        )
    ]
    shutil.rmtree(_home(options), ignore_errors=True)
    results: dict[Case, dict[str, Any]] = {}
    with ThreadPoolExecutor(options.parallel) as pool:
        for case, result in pool.map(lambda case: (case, _run(case, options)), cases):
            results[case] = result
            _result(options).write_text(json.dumps(_document(results, options), indent=1) + "\n")
            for failure in result["failures"]:
                print(f"{case}: {failure}", file=sys.stderr, flush=True)
    return _counter_verdict(results, options) if options.counter else _verdict(results, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make linux-guests", description=__doc__)
    add = parser.add_argument
    add("--kernels", default="6.18,7.2", help="rows of kernels.toml (%(default)s)")
    add("--modes", default=",".join(MODES), help="(%(default)s)")
    add("--minutes", type=float, default=10, help="that they have to live each time (%(default)s)")
    add("--times", type=int, default=3, help="(%(default)s)")
    add("--parallel", type=int, default=1, metavar="N", help="VMs at once; each wants two CPUs (%(default)s)")
    add("--emulator", type=Path, help="another program to boot the VMs with")
    add("--counter", action="store_true",
        help="on Debian's own emulator, guests on CPU 0 and hackbench on CPU 1: one must die")  # fmt: skip
    return parser


def _home(options: argparse.Namespace) -> Path:
    """Return the folder of all VMs' files; the counter-test has one of its own, apart from the test's."""
    return BUILD / ("linux-guests-counter" if options.counter else "linux-guests")


def _result(options: argparse.Namespace) -> Path:
    return _home(options).with_suffix(".json")


def _run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Boot a VM and return the driver's findings. A VM that is lost has lost its guests."""
    kernel = kernels.prepare(kernels.row(case.kernel))
    home = _home(options) / str(case).replace(" ", "-")
    share = _filled(home, kernel)
    words = ["PYTHONPATH=/share", "PYTHONDONTWRITEBYTECODE=1", "exec", "python3", "-m", "linux_guests.driver"]
    words += ["--kernel", "/share/vmlinuz", "--initrd", "/share/initrd", "--result", "/share/result.json"]
    words += ["--minutes", str(options.minutes)]
    words += ["--gangs"] if case.mode == "gang" else []
    words += ["--guests-on", "0", "--until-death"] if options.counter else []
    timeout = options.minutes * 60 + AROUND_SECONDS
    console = home / "console"
    settings = Options(smp=CPUS, share=share, timeout=timeout, console=console, emulator=options.emulator)
    lost = None
    try:
        verdict = boot(case.kernel, [" ".join(words)], settings, Progress(case))  # type: ignore[arg-type]
        status: int | None = verdict.status
    except LabError as error:
        status, lost = None, str(error)
    file = share / "result.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"guests": {}, "failures": []}
    if lost:
        found["failures"].append(lost)
    elif found.get("state") != "done" or (status != 0 and not _deaths(found) and not found["failures"]):
        found["failures"].append(f"the driver ended with status {status} and no result")
    return {"lost": lost, **found}


def _filled(home: Path, kernel: kernels.Kernel) -> Path:
    """Fill and return the VM's /share: the driver, its imports, and the guests' kernel and initrd."""
    share = home / "share"
    unwanted = shutil.ignore_patterns("__pycache__", "__main__.py", "initrd.py")
    shutil.copytree(LAB / "linux_guests", share / "linux_guests", ignore=unwanted)
    shutil.copytree(LAB / "guests", share / "guests", ignore=shutil.ignore_patterns("__pycache__", "flat"))
    for file in (LAB / "boots/complaints.py", kernel.vmlinuz):
        shutil.copy(file, share)
    (share / "initrd").write_bytes(initrd.pack(kernel, home / "modules"))
    shutil.rmtree(home / "modules")
    return share


def _deaths(result: dict[str, Any]) -> list[str]:
    found = {name: guest["death"] for name, guest in result["guests"].items()}
    return [f"{name}: {death['reason']}" for name, death in found.items() if death]


def alive(result: dict[str, Any]) -> int:
    """Return the number of guests of a run that lived to its end; none if the VM did not."""
    if result["lost"] or result.get("state") != "done":
        return 0
    guests = result["guests"].values()
    return sum(guest["death"] is None and guest["work"].get("beat", 0) > 0 for guest in guests)


def _document(results: dict[Case, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "minutes": options.minutes,
        "emulator": str(options.emulator) if options.emulator else "the lab's own",
        "runs": [{**vars(case), "alive": alive(result), **result} for case, result in results.items()],
    }


def _verdict(results: dict[Case, dict[str, Any]], options: argparse.Namespace) -> int:
    """A line for each kernel and mode."""
    wanted, status = options.times * len(NAMES), 0
    for kernel, mode in itertools.product(options.kernels.split(","), options.modes.split(",")):
        mine = [result for case, result in results.items() if (case.kernel, case.mode) == (kernel, mode)]
        lived, failures = sum(map(alive, mine)), sum(len(result["failures"]) for result in mine)
        text = f"; {failures} failures" if failures else ""
        print(f"{kernel} {mode}: {lived} of {wanted} alive after {options.minutes:g} minutes{text}")
        if lived != wanted or failures:
            status = 1
    print(f"every death with its registers: {_result(options).relative_to(REPO)}")
    return status


def _counter_verdict(results: dict[Case, dict[str, Any]], options: argparse.Namespace) -> int:
    (result,) = results.values()
    deaths = _deaths(result)
    for text in deaths:
        print(text)
    print(f"counter-test on {options.emulator}: {len(deaths)} of {len(NAMES)} died, at least one must")
    print(f"its registers: {_result(options).relative_to(REPO)}")
    return 0 if deaths else NO_VERDICT if result["lost"] else 1


if __name__ == "__main__":
    sys.exit(main())
