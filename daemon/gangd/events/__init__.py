# SPDX-License-Identifier: Apache-2.0
"""libvirt in, events out."""
