# SPDX-License-Identifier: Apache-2.0
"""Ratios with their intervals. Pure.

The intervals are the percentiles of a bootstrap (Efron, 1979).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import TypeVar

from msgspec import Struct

RESAMPLES = 2000
FEWEST = 5  # clusters, below which an interval says nothing
SEED = 1

T = TypeVar("T")


class Ratio(Struct):
    """The mean or median of `rounds` ratios. low, high: its 95 % interval, None where there is none."""

    rounds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def pooled(clusters: Iterable[Sequence[tuple[float, float]]]) -> Ratio:
    """Return the ratio of rounds in clusters, each round (ours, theirs): rounds of one cluster are not
    independent, so the interval comes from drawing whole clusters.

    A round of ours without progress makes the mean zero, as it should. One of theirs is left out: counting it
    would favour us.
    """
    pairs = [[pair for pair in cluster if pair[1] > 0] for cluster in clusters]
    pairs = [cluster for cluster in pairs if cluster]
    number = sum(map(len, pairs))
    if not number:
        return Ratio(0)
    if any(ours <= 0 for cluster in pairs for ours, _ in cluster):
        return Ratio(number, 0.0)
    logs = [[math.log(ours / theirs) for ours, theirs in cluster] for cluster in pairs]
    ratio = math.exp(_mean(logs))
    if len(logs) < FEWEST:
        return Ratio(number, ratio)
    low, high = _interval(logs, _mean)
    return Ratio(number, ratio, math.exp(low), math.exp(high))


def paired(rounds: Iterable[tuple[float, float]]) -> Ratio:
    """Return the ratio of independent rounds."""
    return pooled([pair] for pair in rounds)


def middle(rounds: Iterable[tuple[float, float]]) -> Ratio:
    """Return the median ratio of histories (ours, theirs). One of theirs without progress is left out."""
    ratios = [ours / theirs for ours, theirs in rounds if theirs > 0]
    if len(ratios) < FEWEST:
        return Ratio(len(ratios), median(ratios) if ratios else None)
    return Ratio(len(ratios), median(ratios), *_interval(ratios, median))


def _interval(sample: Sequence[T], figure: Callable[[Sequence[T]], float]) -> tuple[float, float]:
    draw = random.Random(SEED)
    found = sorted(figure(draw.choices(sample, k=len(sample))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * 0.025)
    return found[edge], found[-edge - 1]


def _mean(clusters: Iterable[Sequence[float]]) -> float:
    return fmean(value for cluster in clusters for value in cluster)
