# SPDX-License-Identifier: Apache-2.0
"""Drives the simulator in C beside this package: scenarios in, figures, tables and pictures out."""
