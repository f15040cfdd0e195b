# SPDX-License-Identifier: Apache-2.0
"""The errors that the simulator raises, each with one sentence."""


class ScenarioError(Exception):
    """A scenario that cannot be simulated; the message says which and why."""


class Ejected(Exception):
    """The kernel would have thrown the scheduler out."""
