# SPDX-License-Identifier: Apache-2.0
"""Makes `labkit` importable for the tests below, and marks those that boot a VM."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
