# SPDX-License-Identifier: Apache-2.0
"""Plans become settings of the host: probed, journaled, applied, verified, undone."""
