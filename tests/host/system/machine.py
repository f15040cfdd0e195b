# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of KVM in which nothing boots: each vCPU is made and entered once, and KVM tells of it.

usage: machine.py MACHINES VCPU...      VCPU: KVM's number of a vCPU

Prints "ready" once every vCPU has run, then waits for the end of its standard input.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import threading

CREATE_VM, CREATE_VCPU, RUN = 0xAE01, 0xAE41, 0xAE80  # linux/kvm.h

libc = ctypes.CDLL(None, use_errno=True)


def run(machine: int, number: int, ran: threading.Barrier) -> None:
    """The life of a vCPU's thread. KVM_RUN fails where nothing is to be run, and was entered all the same."""
    vcpu = fcntl.ioctl(machine, CREATE_VCPU, number)
    libc.ioctl(vcpu, RUN, 0)
    ran.wait()
    threading.Event().wait()


def main() -> None:
    """Make the machines, say so, and keep them."""
    count, *numbers = map(int, sys.argv[1:])
    kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    for machine in [fcntl.ioctl(kvm, CREATE_VM, 0) for _ in range(count)]:
        ran = threading.Barrier(len(numbers) + 1)
        for number in numbers:
            threading.Thread(target=run, args=(machine, number, ran), daemon=True).start()
        ran.wait()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
