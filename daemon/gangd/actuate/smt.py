# SPDX-License-Identifier: Apache-2.0
"""Switches SMT on and off while the host runs, through /sys/devices/system/cpu/smt.

Key `control`, value the kernel's word. An operator asks for it, not a plan (base.Toggle). What the words
mean: Documentation/ABI/testing/sysfs-devices-system-cpu. Switching it off takes all but the first thread
of each core offline, which may take a while on a large host.
"""

from __future__ import annotations

from pathlib import Path

from gangd.actuate.base import Toggle
from gangd.actuate.limits import V1_CPUSET
from gangd.errors import GangError, InvalidArgument
from gangd.model.smt import Smt
from gangd.model.topology import Topology

KEY = "control"
WORDS = ("on", "off")
_WHY_NOT = {
    "notsupported": "the CPUs of this host have no SMT, or its firmware switched it off",
    "notimplemented": "this kernel cannot switch SMT while it runs",
    "forceoff": "SMT is forced off until the next boot (nosmt=force, or forceoff was written)",
}


class SmtControl(Toggle):
    """root: where /sys is."""

    name = "smt"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._folder = root / "sys/devices/system/cpu/smt"

    def needed(self, wanted: str) -> bool:
        """True if there is anything to do. Raises InvalidArgument for another word than on and off,
        GangError with a sentence where the kernel does not allow it."""
        if wanted not in WORDS:
            raise InvalidArgument(f"SMT can be switched on or off, not '{wanted}'")
        control = self.read(KEY)
        if control is None:
            raise GangError(f"this kernel has no {self._folder / 'control'}")
        if control == wanted or (control == "forceoff" and wanted == "off"):
            return False
        if control in _WHY_NOT:
            raise GangError(_WHY_NOT[control])
        if wanted == "off" and (self._root / V1_CPUSET).exists():
            raise GangError("with cpusets of cgroup v1 the kernel would take these CPUs from guests for good")
        return True

    def read(self, key: str) -> str | None:
        """The kernel's word now, None where there is no such file."""
        try:
            return (self._folder / key).read_text().strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GangError(f"{error.strerror}", "failed to read the state of SMT")

    def write(self, key: str, value: str) -> None:
        """Raises GangError with the kernel's cause."""
        try:
            (self._folder / key).write_text(value)
        except OSError as error:
            raise GangError(f"{error.strerror}", f"failed to switch SMT {value}")

    def state(self, prior: str | None) -> Smt:
        """Everything there is to show; prior: as journaled."""
        active = self.read("active")
        try:
            topology = Topology.read(self._root)
        except (OSError, ValueError) as error:
            raise GangError(f"{error}", "failed to read the host's CPUs")
        return Smt(
            control=self.read(KEY),
            active=None if active not in ("0", "1") else active == "1",
            cores=tuple(topology.cores()),
            offline=topology.offline,
            prior=prior,
        )

    def describe(self, key: str) -> str:
        """The setting in words."""
        return "SMT of this host"

    def changed(self, key: str, value: str) -> str:
        """The sentence that says somebody else set it to `value`."""
        return f"SMT was switched to '{value}' by hand"
