# SPDX-License-Identifier: Apache-2.0
"""Guests: the flat payload with its counters, and stock Linux."""
