# SPDX-License-Identifier: Apache-2.0
"""`make bench-seeds`: the tables this project descends from, measured again with Linux guests of today.

guest/ is what runs in a guest, image.py packs it; driver.py measures beside the real daemon, page.py tells.
"""
