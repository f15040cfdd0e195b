# SPDX-License-Identifier: Apache-2.0
"""Kernel counters in, samples out."""
