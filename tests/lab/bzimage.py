# SPDX-License-Identifier: Apache-2.0
"""The kernel packed in a vmlinuz, an ELF file that QEMU enters directly.

Its boot skips the firmware and the unpacking: 6.5 of a bare boot's 24 virtual seconds. QEMU enters it by
Xen's note for 32-bit entry (PVH: docs/misc/pvh in Xen, hw/i386/x86-common.c in QEMU).
"""

import struct

from lab import packing
from lab.errors import LabError

# Linux's Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
SETUP_SECTORS, PAYLOAD = 0x1F1, 0x248
SECTOR, SIZE_BYTES = 512, 4  # the packed kernel is followed by its size, which gzip's format has itself


def unpacked(vmlinuz: bytes) -> bytes:
    """The ELF file. Raises LabError when it is packed in a way that is not known here."""
    begin = ((vmlinuz[SETUP_SECTORS] or 4) + 1) * SECTOR
    offset, length = struct.unpack_from("<II", vmlinuz, PAYLOAD)
    packed = vmlinuz[begin + offset : begin + offset + length]
    if not packed.startswith(packing.GZIP):
        packed = packed[:-SIZE_BYTES]
    kernel = packing.unpacked(packed)
    if kernel == packed:
        raise LabError(f"cannot unpack a vmlinuz whose kernel begins with {packed[:6].hex()}")
    return kernel
