# SPDX-License-Identifier: Apache-2.0
"""The D-Bus face of the daemon."""
