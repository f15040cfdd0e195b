# SPDX-License-Identifier: Apache-2.0
"""`-m vm.checks.inside.loader PID,TID,TID...` makes a gang of the threads, and waits to be killed."""

from __future__ import annotations

import sys
import time

from vm.checks.inside.threads import Group, Rig

if __name__ == "__main__":
    pid, *tids = map(int, sys.argv[1].split(","))
    cpus = tuple(range(len(tids)))
    rig = Rig(cpus)  # the scheduler lives as long as this does
    rig.schedule(Group("orphan", pid, tuple(tids), cpus))
    print("ready", flush=True)
    while True:
        time.sleep(60)
