# SPDX-License-Identifier: Apache-2.0
"""The configuration file: TOML, strict. Every key has a default; an unknown key is an error."""

from __future__ import annotations

import logging
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gangd.errors import InvalidConfig
from gangd.model import profile as model

log = logging.getLogger(__name__)

DEFAULT_PATH = Path("/etc/gangd/gangd.toml")
RUNTIME = Path("/run/gangd")  # the unit's RuntimeDirectory=, and the default state_dir
# A running gangd takes these up; it reads everything else once, when it starts.
RELOADED = frozenset(
    {
        "daemon.interval",
        "daemon.measure_interval",
        "scheduler.turn_us",
        "scheduler.policy",
        "scheduler.crowded_percent",
        "scheduler.calm_percent",
        "scheduler.moves_per_minute",
        "scheduler.placement",
        "exporter.vcpu_series",
        "profile",
        "select",
    }
)
_SIZE_MAX = 1 << 20
_POLICY = r"^[a-z][a-z0-9-]{0,31}\Z"
_TAG = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"
_LISTEN = r"^(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]+):[0-9]{1,5}\Z"
_FILE = r"^(/.+)?\Z"  # empty: none
_FOLDER = r"^/"
_BUS = r"^(system|session|[a-z-]+:.+)\Z"
# Errors say these words in place of the expression.
_WORDS = {
    _POLICY: "a name (a-z, 0-9 and -, a letter first, at most 32 characters)",
    _TAG: "a tag (letters, digits, dot, _ and -, at most 64 characters)",
    _LISTEN: "ADDRESS:PORT, an IPv6 address in brackets",
    _FILE: "an absolute path",
    _FOLDER: "an absolute path",
    _BUS: "system, session or a D-Bus address",
}

RENAMED = {"slot_us": "turn_us"}  # keys of [scheduler] that gangd 0.2 refuses, and what they are called

# Where a table stands, FILE:LINE: put in as the file is read, under a name that no bare key can have.
PLACE = "<place>"
WHICH = "name, cgroup, tag or marked"


class Daemon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[daemon]. guests: who tells of them: libvirt, or KVM itself of those that libvirt does not have.

    libvirt_uri: "" = libvirt's own choice, which of Debian's client is libvirtd alone.
    interval: seconds between full reads of guests; events make all but vCPU hotplug
    known at once. measure_interval: seconds between the readings that policies see;
    whoever asks (gangctl, a scrape) gets a reading of his own.
    """

    guests: Annotated[tuple[Literal["libvirt", "kvm"], ...], Meta(min_length=1)] = ("libvirt",)
    libvirt_uri: str = "qemu:///system"
    interval: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    measure_interval: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    state_dir: Annotated[str, Meta(pattern=_FOLDER)] = str(RUNTIME)


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[scheduler]. turn_us: the longest turn, 12000 at most, or a slot of gang.ko, in microseconds.

    backend: "auto" is sched_ext where it is usable, else gang.ko ("module").
    policy: or profile, of a mark that names none. crowded_percent, calm_percent: when `adaptive` makes
    a guest a gang, and leaves it alone again (gang_policies/adaptive.py). help: "unmarked" has sched_ext give
    turns, too, to guests without a mark whose vCPUs yield to each other (pause-loop exits), within what
    fairness owes them.
    moves_per_minute: vCPUs that are given another CPU, in any minute, because their guest has it better
    there since others left. placement: of vCPUs that are pinned; "pack" fills whole cores, "spread" gives
    each vCPU a core while some idle, "auto" does so while there are as many cores as vCPUs.
    """

    backend: Literal["auto", "sched_ext", "module", "none"] = "auto"
    turn_us: Annotated[int, Meta(ge=1000, le=1_000_000)] = 30_000
    policy: Annotated[str, Meta(pattern=_POLICY)] = "adaptive"
    crowded_percent: Annotated[float, Meta(ge=0.1, le=100)] = 5.0
    calm_percent: Annotated[float, Meta(ge=0, le=100)] = 2.0
    help: Literal["off", "unmarked"] = "off"
    moves_per_minute: Annotated[int, Meta(ge=0, le=10_000)] = 16
    placement: Literal["auto", "pack", "spread"] = "auto"

    def __post_init__(self) -> None:
        if self.calm_percent > self.crowded_percent:
            raise ValueError("expected `calm_percent` of at most crowded_percent")


class Actuate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[actuate]. What may be set of the cgroup of a whole guest while it is a gang.

    allowed_cpus: "widen" gives it room for the pins of its threads, "keep" leaves it, and pins outside are
    refused. cpu_weight: the weight of a mark or profile is its group's, unless gang.ko keeps it.
    """

    allowed_cpus: Literal["keep", "widen"] = "keep"
    cpu_weight: bool = True


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[exporter]. listen: ADDRESS:PORT, an IPv6 address in brackets.

    vcpu_series: /metrics has so many series of single vCPUs at most, 0 = none; gangs come first, and a guest
    has the series of all its vCPUs or of none. certificate, key: files in PEM, with which it
    serves HTTPS; "" = HTTP.
    """

    listen: Annotated[str, Meta(pattern=_LISTEN)] = "127.0.0.1:9752"
    enabled: bool = True
    vcpu_series: Annotated[int, Meta(ge=0, le=1_000_000)] = 2000
    certificate: Annotated[str, Meta(pattern=_FILE)] = ""
    key: Annotated[str, Meta(pattern=_FILE)] = ""

    def __post_init__(self) -> None:
        if self.address[1] > 65535:
            raise ValueError(f"expected a port of at most 65535 in `listen`, not {self.address[1]}")
        if bool(self.certificate) != bool(self.key):
            missing, given = ("certificate", "key") if self.key else ("key", "certificate")
            raise ValueError(f"expected `{missing}` beside `{given}`")

    @property
    def address(self) -> tuple[str, int]:
        """Host (without brackets) and port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[control]. bus: "system", "session" or a D-Bus address such as "unix:path=/run/bus"."""

    bus: Annotated[str, Meta(pattern=_BUS)] = "system"


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[profile.NAME]. policy: an installed one, or off. weight: None = the domain's own CPU shares."""

    policy: Annotated[str, Meta(pattern=_POLICY)] = "adaptive"
    weight: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    place: str = msgspec.field(name=PLACE, default="")


class Select(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[select]], in the order of the file. name, cgroup, tag, marked: which guests
    (gangd.model.profile.Selector); profile or policy: what is chosen for them, neither: profile `default`."""

    name: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    cgroup: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    tag: Annotated[str, Meta(pattern=_TAG)] | None = None
    marked: bool | None = None
    profile: Annotated[str, Meta(pattern=_POLICY)] | None = None
    policy: Annotated[str, Meta(pattern=_POLICY)] | None = None
    place: str = msgspec.field(name=PLACE, default="")

    def __post_init__(self) -> None:
        if (self.name, self.cgroup, self.tag, self.marked) == (None, None, None, None):
            raise ValueError(f"expected {WHICH}: which guests it selects (name = '*' is all)")
        if self.tag is not None and self.marked is False:
            raise ValueError("a tag is part of a mark, so that with marked = false it selects no guest")
        if self.profile is not None and self.policy is not None:
            raise ValueError("expected profile or policy, not both")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    daemon: Daemon = Daemon()
    scheduler: Scheduler = Scheduler()
    actuate: Actuate = Actuate()
    exporter: Exporter = Exporter()
    control: Control = Control()
    profile: dict[Annotated[str, Meta(pattern=_POLICY)], Profile] = {}
    select: tuple[Select, ...] = ()

    def __post_init__(self) -> None:
        if model.OFF in self.profile:
            raise ValueError("'off' is reserved and cannot name a profile - at `$.profile.off`")
        known = {*self.profile, *(built_in.name for built_in in model.BUILT_IN)}
        for number, select in enumerate(self.select):
            if select.profile is not None and select.profile not in known:
                what = f"no profile is called '{select.profile}' (there are {', '.join(sorted(known))})"
                raise ValueError(f"{what} - at `$.select[{number}].profile`")

    def with_state_dir(self, folder: Path) -> Config:
        """Return the same with its journal in `folder`."""
        return msgspec.structs.replace(
            self, daemon=msgspec.structs.replace(self.daemon, state_dir=str(folder))
        )

    @property
    def rules(self) -> model.Rules:
        """The rules that choose each guest's policy, with gangd's own profiles."""
        own = [model.Profile(name, p.policy, p.weight, p.place) for name, p in self.profile.items()]
        selectors = [
            model.Selector(s.profile or s.policy or "default", s.place, s.name, s.tag, s.marked, s.cgroup)
            for s in self.select
        ]
        return model.rules(own, selectors, self.scheduler.policy)


def merged(old: Config, new: Config) -> tuple[Config, list[str], list[str]]:
    """`old` with what a running gangd takes up of `new`; the keys it takes up, and those it cannot."""
    changed: list[str] = []
    values = {}
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if not isinstance(before, msgspec.Struct):  # profiles, selectors: all of them or none
            changed += [name] if before != after else []
            values[name] = after if name in RELOADED else before
            continue
        keys = [key for key in before.__struct_fields__ if getattr(before, key) != getattr(after, key)]
        changed += [f"{name}.{key}" for key in keys]
        taken = {key: getattr(after, key) for key in keys if f"{name}.{key}" in RELOADED}
        values[name] = msgspec.structs.replace(before, **taken)
    merged = Config(**values)
    return merged, [key for key in changed if key in RELOADED], [k for k in changed if k not in RELOADED]


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
    except (OSError, ValueError) as error:  # ValueError: no path has a NUL
        raise InvalidConfig(f"{file}: {getattr(error, 'strerror', error)}")
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
        tables = tomllib.loads(text)
        _put_places(tables, text, file)
        _rename(tables.get("scheduler"), text, file)
        return msgspec.convert(tables, Config)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r" \(at line (\d+), column \d+\)", str(error))
        if found is None:  # the end of the document
            raise InvalidConfig(f"{file}:{text.count(chr(10)) + 1}: {_lowered(str(error))}")
        raise InvalidConfig(f"{file}:{found[1]}: {_lowered(str(error).replace(found[0], ''))}")
    except msgspec.ValidationError as error:
        raise InvalidConfig(_located(_with_profile(str(error), tables), text, file))


def _put_places(tables: dict[str, Any], text: str, file: Path) -> None:
    """Into every table of a profile or selector, where it stands."""
    profiles, selectors = tables.get("profile"), tables.get("select")
    found = [(f"profile.{key}", at) for key, at in profiles.items()] if isinstance(profiles, dict) else []
    found += [(f"select[{n}]", at) for n, at in enumerate(selectors)] if isinstance(selectors, list) else []
    for key, table in found:
        if isinstance(table, dict):
            line = _line_of(key, text)
            table[PLACE] = f"{file}:{line}" if line else f"{key} of {file}"


def _rename(scheduler: object, text: str, file: Path) -> None:
    """Move values from old names to today's; beside today's name the old one is an unknown key."""
    for old, new in RENAMED.items():
        if isinstance(scheduler, dict) and old in scheduler and new not in scheduler:
            scheduler[new] = scheduler.pop(old)
            place = f"{file}:{_line_of(f'scheduler.{old}', text)}"
            log.warning(
                "%s: scheduler.%s is called scheduler.%s: gangd 0.2 refuses the old name", place, old, new
            )


def _with_profile(message: str, tables: dict[str, Any]) -> str:
    """msgspec's message with the name of the profile it is about, for which msgspec has `[...]`."""
    if message.endswith("at `key` in `$.profile`"):
        wrong = next(name for name in tables["profile"] if not re.search(_POLICY, name))
        return f"Not a name for a profile (a-z, 0-9 and -, at most 32 characters) - at `$.profile.{wrong}`"
    if "`$.profile[...]" not in message:
        return message
    for name, table in tables["profile"].items():
        try:
            msgspec.convert(table, Profile)
        except msgspec.ValidationError:
            return message.replace("profile[...]", f"profile.{name}")
    return message


def _located(message: str, text: str, file: Path) -> str:
    """msgspec's "what - at `$.section.key`" as "FILE:LINE: section.key: what"."""
    what, _, where = message.partition(" - at `$.")
    key = where.removesuffix("`")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        key = ".".join(filter(None, [key, unknown[1]]))
        what = "unknown key"
    named = re.search(
        r"`(listen|certificate|key|calm_percent)`", what
    )  # raised by __post_init__, which knows only its table
    if named and "." not in key:
        key = f"{key}.{named[1]}"
    for pattern, words in _WORDS.items():
        what = what.replace(f"`str` matching regex {pattern!r}", words)
    line = _line_of(key, text)
    place = f"{file}:{line}" if line else f"{file}"
    return f"{place}: {key}: {_lowered(what)}"


def _line_of(key: str, text: str) -> int | None:
    """Line of `section.key` or of `[section]`, counted from 1; None when written in a way not known here.

    A small scan, not a parser: it reads the usual forms, and a wrong key is
    still named by the message when its line is not found.
    """
    section, found = "", None
    counts: Counter[str] = Counter()  # of the tables of an array, which are `[[name]]`
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[?)\[\s*([^\[\]]+?)\s*\]", line)
        assigned = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if header:
            section = header[2].strip("\"'")
            if header[1]:
                counts[section] += 1
                section = f"{section}[{counts[section] - 1}]"
            here = section
        elif assigned:
            here = ".".join(filter(None, [section, assigned[1].strip("\"'")]))
        else:
            continue
        if here == key:
            return number
        if found is None and key.startswith((here + ".", here + "[")):
            found = number  # the table, for lack of the key: `daemon = {...}`
    return found


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
