# SPDX-License-Identifier: Apache-2.0
"""libvirt guests of the experiments: the flat payload, and stock Linux."""
