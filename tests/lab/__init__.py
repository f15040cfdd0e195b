# SPDX-License-Identifier: Apache-2.0
"""The lab: boots Debian kernels under QEMU without hardware virtualization, and runs commands in them.

Standard library only; runs inside the toolbox (tests/lab/enter). The entrance for tests is
`lab.session.run`, for people `tests/lab/run`.
"""
