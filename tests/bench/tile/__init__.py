# SPDX-License-Identifier: Apache-2.0
"""`make bench-tile`: one host with guests that all do something else, at once (the idea of VMmark's tile).

parties.py says which parties share the host, plan.py in which arms and with which bars; driver.py measures
beside the real daemon, page.py writes the tables. guest/ is what runs in a guest, image.py packs it.
"""
