# SPDX-License-Identifier: Apache-2.0
"""A host full of guests in a discrete-event simulation (docs/simulation.md).

>>> from gangsim.engine import run
>>> from gangsim.scenario import Guest, Host, Scenario, Task
>>> guests = (Guest("barrier", 8), Guest("barrier", 8, busy=1))
>>> run(Scenario("thin beside wide", Host(8, 1, 8), guests, tasks=(Task("hog", 2),)), "gang").share("g0")
"""
