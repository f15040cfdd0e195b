# SPDX-License-Identifier: Apache-2.0
"""Gains and costs of the kernel side and of the daemon, against the default scheduler.

`boot` prepares and boots (in the toolbox); `driver`, `overhead`, `adaptive` and `shares` run in the VM.
demo/, seeds/ and tile/ have drivers of their own.
"""
