# SPDX-License-Identifier: Apache-2.0
"""Makes the packages of tests/lab importable."""

import sys
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "lab"
if str(LAB) not in sys.path:
    sys.path.insert(0, str(LAB))
