# SPDX-License-Identifier: Apache-2.0
"""Packages that few things here need, put into the toolbox by the first that does.

As part of packages.txt they would make everybody's toolbox, and the VM's root image, larger.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from lab.shell import call, lock, say


def unchanging() -> AbstractContextManager[None]:
    """Return the lock that keeps installations out while the toolbox's tree is copied."""
    return lock("toolbox-packages")


def need(names: Sequence[str], reason: str) -> None:
    """Install what is missing of `names`; `reason` ends the sentence that says so."""
    with unchanging():
        query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"]
        installed = set(call(query, "list the toolbox's packages").splitlines())
        missing = [name for name in names if f"installed {name}" not in installed]
        if not missing:
            return
        say(f"installing {', '.join(missing)} in the toolbox: {reason}")
        call(["apt-get", "-qq", "update"], "read the toolbox's package lists")
        call(
            ["apt-get", "-qq", "-y", "--no-install-recommends", "install", *missing],
            f"install {', '.join(missing)}",
        )
