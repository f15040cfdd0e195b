# SPDX-License-Identifier: Apache-2.0
"""`python3 -m lab`, which is what tests/lab/run executes inside the toolbox."""

import sys

from lab.cli import main

sys.exit(main(sys.argv[1:]))
