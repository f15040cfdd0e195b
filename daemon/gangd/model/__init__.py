# SPDX-License-Identifier: Apache-2.0
"""State, events and plans as pure values: imports nothing but itself."""
