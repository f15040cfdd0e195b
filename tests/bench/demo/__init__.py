# SPDX-License-Identifier: Apache-2.0
"""The demonstration: guests without and with gang scheduling, measured; then the host is as it was.

`boot` prepares and boots (in the toolbox); `driver` runs where the guests run, in the VM or on a real host;
`outcome` says what came out.
"""
