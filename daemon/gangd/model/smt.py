# SPDX-License-Identifier: Apache-2.0
"""Simultaneous multithreading of a host. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Smt:
    """control: the kernel's word for it ("on", "off", "forceoff", "notsupported", "notimplemented"; a number
    of threads where cores have more than two), None = this kernel has no such file. active: some core has two
    threads online, None = unknown. cores: the online CPUs of each. prior: what an undo would write, None =
    gangd did not change it.
    """

    control: str | None = None
    active: bool | None = None
    cores: tuple[tuple[int, ...], ...] = ()
    offline: frozenset[int] = frozenset()
    prior: str | None = None
