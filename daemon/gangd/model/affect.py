# SPDX-License-Identifier: Apache-2.0
"""The states of a domain that a change affects. No dataclass: gangctl would import twice as much for it."""

from __future__ import annotations


class Affect:
    """The domain states that a change affects, in libvirt's words.

    live: the state that ends with the guest; config: the one that counts from its next start. Neither: the
    current one, which is the live one of a running domain and else the configured one. (No Affect at all:
    all there are.)
    """

    __slots__ = ("config", "live")

    def __init__(self, config: bool = False, live: bool = False) -> None:
        self.config = config
        self.live = live

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affect) and (self.config, self.live) == (other.config, other.live)

    def __hash__(self) -> int:
        return hash((self.config, self.live))

    def __repr__(self) -> str:
        return f"Affect(config={self.config}, live={self.live})"
