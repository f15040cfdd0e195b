# SPDX-License-Identifier: Apache-2.0
"""gangd: gang scheduling for libvirt KVM guests."""

__version__ = "0.1.0"
