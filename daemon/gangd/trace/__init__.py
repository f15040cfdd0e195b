# SPDX-License-Identifier: Apache-2.0
"""A trace of guests: recorded event by event, put together, drawn."""
