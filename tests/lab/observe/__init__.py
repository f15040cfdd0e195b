# SPDX-License-Identifier: Apache-2.0
"""Readings of guests, the daemon, the host and the machine below it while they run."""
