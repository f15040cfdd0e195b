# SPDX-License-Identifier: Apache-2.0
"""The records that a result is made of, and the only place that reads and writes its file.

A field that an older file does not have has its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct, field

from bench.stats import Ratio

SCHEMA = 3
Key = tuple[str, bool, int]  # load, PLE, guests


class Origin(Struct, kw_only=True, omit_defaults=True):
    """The conditions of a figure: fingerprints of the sources and of the emulator, the clock, the kernel, the
    settings of the run. processor: in place of an emulator on a real host."""

    sources: str
    module: bool = True
    emulator: str | None = None
    processor: str | None = None
    guest: str | None = None
    driver: str | None = None
    clock: str = "virtual"
    instruction_ns: int | None = None
    lockstep_ns: int | None = None
    row: str = ""
    window: int | None = None
    smp: int = 2
    vcpus: int = 2
    seconds: float = 0.0
    settle: float = 0.0
    slot_ms: float = 0.0


class Round(Struct, kw_only=True):
    """A round of a variant. cpus: that the guests' vCPUs had, on average; start_skew: bucket b counts turns
    that started within 2^b us (gang_abi.h)."""

    rate: float
    cpus: float | None = None
    start_skew: list[int] = field(default_factory=list)
    turns: int = 0
    whole: int = 0
    skew_ms: float = 0.0


class Cell(Struct, kw_only=True):
    """A variant in a cell of the matrix.

    rates: iterations/s of all guests together. whole_share: of the turns in which every runnable member
    ran; skew in ms from a turn's start to the last member on CPU. alone: one guest alone, the limit. failed:
    rounds in which the scheduler did. unavailable: the reason why there are no rounds. None: unknown, or no
    gangs.
    """

    variant: str
    load: str
    ple: bool
    guests: int
    rates: list[float]
    median: float | None = None
    cpus: float | None = None
    spread: float | None = None
    turns: int | None = None
    whole_share: float | None = None
    skew_mean_ms: float | None = None
    skew_p99_ms: float | None = None
    alone: float | None = None
    run: str | None = None
    failed: int = 0
    unavailable: str | None = None
    limit_share: float | None = None


class Gain(Struct, kw_only=True):
    """A gang variant in a cell over each baseline, over the best one, and over one guest alone."""

    variant: str
    load: str
    ple: bool
    guests: int
    best: str | None
    of_best: Ratio | None
    of_limit: Ratio | None
    of_default: Ratio | None
    of_pinned: Ratio | None
    of_balance: Ratio | None
    cpus_of_best: float | None
    within_one_run: bool


class Pooled(Ratio, kw_only=True):
    """The gang over a baseline, all rounds of a load."""

    load: str
    baseline: str


class Figure(Struct, kw_only=True):
    """A measured figure. n: rounds that it rests on; failed: those among them in which the scheduler failed;
    without: baselines that were not measured."""

    measured: float | None = None
    low: float | None = None
    high: float | None = None
    without: list[str] = field(default_factory=list)
    n: int | None = None
    failed: int | None = None


class Verdict(Figure, kw_only=True):
    """A figure beside its bar. most: the bar is an upper bound; met: None while it is open."""

    what: str
    wanted: float | None
    most: bool
    met: bool | None


class Event(Struct, kw_only=True):
    """The runs of a BPF program, and the ns of each."""

    runs: int
    ns: float


class OpCost(Struct, kw_only=True):
    """The calls of an op of a scheduling class, and the ns of each."""

    calls: int
    ns: float


class Ops(Struct, kw_only=True):
    """The cost of each op, and of all ops of a pipe's round trip."""

    ops: dict[str, OpCost]
    round_trip_ns: float


class Memory(Struct, kw_only=True):
    """Bytes the kernel has locked for our maps, and these divided by the most vCPUs they hold."""

    maps: dict[str, int] = field(default_factory=dict)
    bytes: int | None = None
    bytes_per_vcpu: float | None = None


class Overhead(Struct, kw_only=True):
    """The cost of ordinary work: by work and condition, and by condition the events and ops."""

    conditions: list[str] = field(default_factory=list)
    medians: dict[str, dict[str, float]] = field(default_factory=dict)
    ratios: dict[str, dict[str, Ratio]] = field(default_factory=dict)
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    events: dict[str, dict[str, Event]] = field(default_factory=dict)
    ops: dict[str, Ops] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


class Comparison(Ratio, kw_only=True):
    """The rounds of one load under each policy; the ratio is that of adaptive to the best of the others.

    decided_seconds: from the mark until all guests were decided on, by round; chosen: modes of all guests at
    the end of the rounds; daemon: gangd's share of one CPU; failed: a reason for each round in which gangd
    failed the guests, which counts; restless: guests whose mode adaptive had changed meanwhile.
    """

    load: str
    ple: bool
    guests: int
    rates: dict[str, list[float]]
    medians: dict[str, float | None] = field(default_factory=dict)
    daemon: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    restless: int = 0
    decided_seconds: list[float] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class Share(Ratio, kw_only=True):
    """CPUs of a party in each round, their medians, the ratio of the sides, and what it has of its quota
    under our scheduler."""

    scene: str
    party: str
    default: float
    gang: float
    of_quota: float | None
    cpus: dict[str, list[float]] = field(default_factory=dict)


class Noise(Struct, kw_only=True):
    """The medians of a cell as the machine is and beside busy loops; the difference is a share of quiet."""

    cell: str
    quiet: float | None
    noisy: float | None
    difference: float | None
    rounds: int
    failed: int
    spread: float | None = None


class Machine(Struct, kw_only=True):
    """CPUs of the machine, and how many of them were busy, and busy for the VM."""

    cpus: int = 0
    seconds: int = 0
    busy: float = 0.0
    vm: float = 0.0


class Result(Struct, kw_only=True, omit_defaults=True):
    """A result. part: which bars of the plan it is judged by. The parts that were measured are not None.

    seeds, latency, before: cells as bench/seeds has them; tile: as bench/tile has.
    """

    part: str
    origin: Origin
    schema: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    date: str | None = None
    kernel: str | None = None
    wall_seconds: float = 0.0
    cells: list[Cell] = field(default_factory=list)
    ratios: list[Gain] = field(default_factory=list)
    pooled: list[Pooled] = field(default_factory=list)
    judged: list[Verdict] = field(default_factory=list)
    lab_failures: list[str] = field(default_factory=list)
    overhead: Overhead | None = None
    adaptive: list[Comparison] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    machine: dict[str, Machine] = field(default_factory=dict)
    rows: list[Noise] = field(default_factory=list)
    seeds: list[dict[str, Any]] = field(default_factory=list)
    latency: list[dict[str, Any]] = field(default_factory=list)
    tile: list[dict[str, Any]] = field(default_factory=list)
    before: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, place: Path) -> Self:
        """Return the result of a file."""
        return msgspec.json.decode(place.read_bytes(), type=cls)

    def write(self, place: Path) -> None:
        """Write the result to a file, whole or not at all: it outlives a VM that is lost meanwhile."""
        new = place.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        new.replace(place)
