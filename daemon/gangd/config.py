# SPDX-License-Identifier: Apache-2.0
"""The configuration file: TOML, strict. Every key has a default; an unknown key is an error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gangd.errors import InvalidConfig

DEFAULT_PATH = Path("/etc/gangd/gangd.toml")
_SIZE_MAX = 1 << 20
_LISTEN = r"^(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]+):[0-9]{1,5}\Z"


class Daemon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[daemon]. libvirt_uri: "" = libvirt's own choice.

    interval: seconds between full reads of libvirt; events make all but vCPU hotplug
    known at once. measure_interval: seconds between the readings that policies see;
    whoever asks (gangctl, a scrape) gets a reading of his own.
    """

    libvirt_uri: str = ""
    interval: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    measure_interval: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    state_dir: Annotated[str, Meta(pattern=r"^/")] = "/run/gangd"


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[scheduler]. slot_us: length of a slot in microseconds (ESX: 50 ms; scx_pair: 20 ms).

    backend: "auto" is sched_ext where it is usable, else the module.
    switch: "full" puts every task of the host under the sched_ext scheduler while a gang runs, "partial" only
    vCPU threads of gangs, on CPUs that no fair task can reach. policy: of a mark that names none.
    moves_per_minute: vCPUs that are given another CPU, in any minute, because their guest has it better
    there since others left.
    """

    backend: Literal["auto", "sched_ext", "module", "none"] = "auto"
    slot_us: Annotated[int, Meta(ge=1000, le=1_000_000)] = 30_000
    policy: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")] = "relaxed"
    switch: Literal["full", "partial"] = "full"
    moves_per_minute: Annotated[int, Meta(ge=0, le=10_000)] = 16


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[exporter]. listen: ADDRESS:PORT, an IPv6 address in brackets."""

    listen: Annotated[str, Meta(pattern=_LISTEN)] = "127.0.0.1:9752"
    enabled: bool = True

    def __post_init__(self) -> None:
        if self.address[1] > 65535:
            raise ValueError(f"expected a port of at most 65535 in `listen`, not {self.address[1]}")

    @property
    def address(self) -> tuple[str, int]:
        """Host (without brackets) and port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[control]. bus: "system", "session" or a D-Bus address such as "unix:path=/run/bus"."""

    bus: Annotated[str, Meta(pattern=r"^(system|session|[a-z-]+:.+)\Z")] = "system"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    daemon: Daemon = Daemon()
    scheduler: Scheduler = Scheduler()
    exporter: Exporter = Exporter()
    control: Control = Control()


def load(path: Path | None = None) -> Config:
    """The configuration at `path`, or at DEFAULT_PATH, where no file means the defaults.

    Raises InvalidConfig: "FILE:LINE: KEY: what is wrong".
    """
    file = path or DEFAULT_PATH
    try:
        with file.open("rb") as stream:
            data = stream.read(_SIZE_MAX + 1)
    except FileNotFoundError as error:
        if path is None:
            return Config()
        raise InvalidConfig(f"{file}: {error.strerror}")
    except OSError as error:
        raise InvalidConfig(f"{file}: {error.strerror}")
    if len(data) > _SIZE_MAX:
        raise InvalidConfig(f"{file}: larger than {_SIZE_MAX} bytes")
    return _parse(data, file)


def _parse(data: bytes, file: Path) -> Config:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{file}:{line}: not UTF-8 text")
    try:
        return msgspec.convert(tomllib.loads(text), Config)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r" \(at line (\d+), column \d+\)", str(error))
        if found is None:  # the end of the document
            raise InvalidConfig(f"{file}:{text.count(chr(10)) + 1}: {_lowered(str(error))}")
        raise InvalidConfig(f"{file}:{found[1]}: {_lowered(str(error).replace(found[0], ''))}")
    except msgspec.ValidationError as error:
        raise InvalidConfig(_located(str(error), text, file))


def _located(message: str, text: str, file: Path) -> str:
    """msgspec's "what - at `$.section.key`" as "FILE:LINE: section.key: what"."""
    what, _, where = message.partition(" - at `$.")
    key = where.removesuffix("`")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        key = ".".join(filter(None, [key, unknown[1]]))
        what = "unknown key"
    named = re.search(r"`(listen)`", what)  # raised by __post_init__, which knows only its table
    if named and "." not in key:
        key = f"{key}.{named[1]}"
    line = _line_of(key, text)
    place = f"{file}:{line}" if line else f"{file}"
    return f"{place}: {key}: {_lowered(what)}"


def _line_of(key: str, text: str) -> int | None:
    """Line of `section.key` or of `[section]`, counted from 1; None when written in a way not known here.

    A small scan, not a parser: it reads the usual forms, and a wrong key is
    still named by the message when its line is not found.
    """
    section, found = "", None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        assigned = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if header:
            section = header[1].strip("\"'")
            here = section
        elif assigned:
            here = ".".join(filter(None, [section, assigned[1].strip("\"'")]))
        else:
            continue
        if here == key:
            return number
        if found is None and key.startswith(here + "."):
            found = number  # the table, for lack of the key: `daemon = {...}`
    return found


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
