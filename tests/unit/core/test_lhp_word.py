# SPDX-License-Identifier: Apache-2.0
"""The word in which a guest's running and waiting vCPUs are counted: no uptime and no order breaks it."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .library import load

S64, U64 = ctypes.c_int64, ctypes.c_uint64
UNIT = 1024
ROUND = 1 << 54  # ns: 208 days and a half
RUN, WAIT = 1, 1 << 10
YEARS = 30 * 365 * 86400 * 10**9


class Word:
    """A word, and what its intervals came to."""

    def __init__(self, library: ctypes.CDLL, now: int) -> None:
        self._library = library
        for name in ("word_next", "word_length_ns", "word_running", "word_waiting"):
            getattr(library, name).restype = U64
        self.word, self.total = (now // UNIT << 20) % 2**64, 0

    def change(self, delta: int, now: int) -> None:
        """Swap it, as lhp.bpf.c does."""
        self.total += self._library.word_length_ns(U64(self.word), U64(now))
        self.word = self._library.word_next(U64(self.word), S64(delta), U64(now))

    def add(self, delta: int) -> None:
        """Change the counts alone, as lhp.bpf.c does when others swap all the time."""
        self.word = (self.word + delta) % 2**64

    @property
    def counts(self) -> tuple[int, int]:
        """Running and waiting."""
        return self._library.word_running(U64(self.word)), self._library.word_waiting(U64(self.word))


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """The compiled header."""
    return load("lhp.c")


@pytest.mark.parametrize("begin", [0, ROUND - 5_000_000, ROUND, ROUND + 10**9, 7 * ROUND - 1, YEARS])
def test_intervals_are_right_at_every_uptime(library: ctypes.CDLL, begin: int) -> None:
    """Also in the moment in which the stamp goes round, after 208.5 days, and ever after."""
    word = Word(library, begin)
    for step in range(1, 11):
        word.change(RUN if step % 2 else -RUN, begin + step * 1_000_000)
    assert abs(word.total - 10_000_000) < 2 * UNIT
    assert word.counts == (0, 0)


@given(begin=st.integers(0, YEARS), steps=st.lists(st.integers(-50_000, 10_000_000), max_size=50))
def test_steps_back_are_counted_once(library: ctypes.CDLL, begin: int, steps: list[int]) -> None:
    """Another CPU may have stamped later: the sum of all intervals is the time up to the latest stamp."""
    begin += 10**9
    word, now, latest = Word(library, begin), begin, begin
    for step in steps:
        now += step
        now = max(now, latest - 50_000)
        latest = max(latest, now)
        word.change(0, now)
    assert word.total == (latest // UNIT - begin // UNIT) * UNIT


@given(
    begin=st.integers(0, YEARS),
    order=st.lists(st.tuples(st.integers(0, 63), st.booleans()), max_size=200),
)
def test_no_update_is_lost(library: ctypes.CDLL, begin: int, order: list[tuple[int, bool]]) -> None:
    """64 vCPUs, each going from blocked to waiting to running and on, some by swapping and some by adding."""
    word, states = Word(library, begin), [0] * 64
    weights = (0, WAIT, RUN)
    for at, (vcpu, swaps) in enumerate(order):
        before, states[vcpu] = states[vcpu], (states[vcpu] + 1) % 3
        delta = weights[states[vcpu]] - weights[before]
        if swaps:
            word.change(delta, begin + at * 10_000)
        else:
            word.add(delta)
        assert word.counts == (states.count(2), states.count(1))
