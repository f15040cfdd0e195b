# SPDX-License-Identifier: Apache-2.0
"""`make bench-kernel`: what the kernel side gains over the default scheduler, and what it costs.

`lab` prepares and boots (in the toolbox); `driver` and `overhead` run in the VM. Guests, KVM's switch for
PLE and the judgement of the machine underneath are the demonstration's (tests/lab/demo).
"""
