# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: how parallel processes (pytest -n N --dist loadgroup) share the tests.

The tests of a file stay together, since they share what is made for the file; those that use the machine
itself take turns. What takes longest is begun first: the tests that mostly wait, then the virtual machines in
the order of their table. xdist itself would begin with the groups that have most tests.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest

FIRST = ("system", "vm")  # folders of tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Put every test into a group, and the groups in order."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            folder = item.path.parent
            name = "system" if folder.name == "system" else f"{folder.name}/{item.path.stem}"
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_place)


def _place(item: Any) -> int:
    folder = item.path.parent.name
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Return the scheduler of groups, if groups are asked for; else None, and xdist takes its own."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # a session without processes needs no xdist

    class AsCollected(LoadGroupScheduling):  # type: ignore[misc]
        """Groups are begun in the order of their tests. (xdist 3.8 has --no-loadscope-reorder for this.)"""

        @cached_property
        def _places(self) -> dict[str, int]:
            return {test: place for place, test in enumerate(self.collection)}

        def _assign_work_unit(self, node: Any) -> None:
            first = min(self.workqueue, key=lambda group: self._places[next(iter(self.workqueue[group]))])
            self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return AsCollected(config, log)
