# SPDX-License-Identifier: Apache-2.0
"""`make linux-guests`: several stock Linux guests live beside work on their host, unpinned and as gangs.

`python3 -m linux_guests` boots the VMs, `linux_guests.driver` is what runs in them.
"""
