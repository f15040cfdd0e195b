# SPDX-License-Identifier: Apache-2.0
"""A policy comes from anybody, and is asked within the daemon: whatever it does, only its guest is refused.

What it raises and what it answers that is no decision becomes one sentence with its name, logged once with
the place it came from. One that does not answer within LIMIT_SECONDS is interrupted and not asked again: the
event loop waits for it. Interrupted is what Python can interrupt; a policy that hangs in C code is ended
with the daemon, by systemd's watchdog.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gangd.errors import GangError
from gangd.model.domain import Domain, Mode
from gangd.model.evidence import Evidence
from gangd.model.policy import Decision

log = logging.getLogger(__name__)

LIMIT_SECONDS = 1.0
AGAIN_MIN = 0.1  # the least that daemon.measure_interval can be
TEXT_MAX = 200


class TooSlow(BaseException):
    """Raised inside a policy whose time is up; not an Exception, which it might catch."""


class Guarded:
    """The policy `name`, from `load` when it is asked for. Itself a policy; raises GangError only."""

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name = name
        self._told: set[tuple[str, str]] = set()
        self._given_up: str | None = None
        self.remembers: type | None = None
        try:
            policy = load()
            self._decide = policy.decide
            self.remembers = getattr(policy, "remembers", None)
        except (Exception, SystemExit) as error:
            self._given_up = self._failure("cannot be loaded", error)

    def decide(self, domain: Domain, evidence: Evidence, memory: object = None) -> Decision:
        """The policy's decision. Raises GangError with the policy's name and what it did instead."""
        if self._given_up:
            raise GangError(self._given_up)
        try:
            with _ALARM.set(LIMIT_SECONDS):
                return _checked(self._decide(domain, evidence, memory))
        except TooSlow:
            self._given_up = (
                f"policy '{self.name}' did not answer within {LIMIT_SECONDS:g} s: "
                "it is not asked again until gangd is restarted"
            )
            log.error("%s", self._given_up)
            raise GangError(self._given_up)
        except BaseException as error:  # whatever it is: a policy does not end the daemon
            raise GangError(self._failure("failed", error))

    def _failure(self, what: str, error: BaseException) -> str:
        """The sentence; logged with its traceback unless the same came from the same line before."""
        sentence = f"policy '{self.name}' {what}: {_text(error)}"
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        if (type(error).__name__, place) not in self._told:
            self._told.add((type(error).__name__, place))
            log.error("%s", sentence, exc_info=error)
        return sentence


def _checked(answer: object) -> Decision:
    """The answer, if it is a decision. Raises TypeError, ValueError."""
    if type(answer) is not Decision:
        raise TypeError(f"it answered {type(answer).__name__} instead of a Decision")
    if not isinstance(answer.mode, Mode):
        raise TypeError(f"the mode of its decision is {answer.mode!r}, not a Mode")
    if not isinstance(answer.reason, str) or not answer.reason.strip():
        raise ValueError("its decision has no reason")
    again = answer.again
    if again is None:
        return answer
    if isinstance(again, bool) or not isinstance(again, (int, float)):
        raise TypeError(f"its decision wants a reading again after {again!r}, not a number of seconds")
    if not math.isfinite(again) or again < AGAIN_MIN:
        raise ValueError(f"its decision wants a reading again after {again} s; {AGAIN_MIN} is the least")
    return answer


def _text(error: BaseException) -> str:
    """An error in one line of bounded length; its own text may raise, too."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    kind = type(error).__name__
    return f"{kind}: {said[:TEXT_MAX]}" if said else kind


class _Alarm:
    """A timer for all policies: it is set for the first that is asked, and goes on until none is. A plan
    asks a thousand, and a timer for each of them cost more than they did."""

    def __init__(self) -> None:
        self._end: float | None = None  # of the time that a policy has; None: none is asked
        self._runs = False
        self._before: Any = None  # whoever had the signal

    @contextmanager
    def set(self, seconds: float) -> Iterator[None]:
        """Raises TooSlow in what is done within it, once the time is up. Only the main thread, where the
        daemon's loop is, can be interrupted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._end = time.monotonic() + seconds
        if not self._runs:
            self._before, self._runs = signal.signal(signal.SIGALRM, self._rings), True
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            self._end = None

    def _rings(self, *_: object) -> None:
        left = 0.0 if self._end is None else self._end - time.monotonic()
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        signal.signal(signal.SIGALRM, self._before)
        self._runs = False
        if self._end is not None:
            raise TooSlow("its time is up")


_ALARM = _Alarm()
