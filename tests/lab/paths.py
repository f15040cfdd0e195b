# SPDX-License-Identifier: Apache-2.0
"""The places where the lab keeps its files, as seen from inside the toolbox."""

from pathlib import Path

LAB = Path(__file__).resolve().parent
REPO = LAB.parent.parent
ROOT_FILES = Path(__file__).with_name("root")
KERNELS_TOML = LAB / "kernels.toml"
TOOLBOX_MARK = Path("/etc/gangd-toolbox")

BUILD = REPO / "build" / "lab"
APT = BUILD / "apt"
KERNELS = BUILD / "kernels"
HEADERS = BUILD / "headers"
MODULES = BUILD / "modules"
MODULE_SOURCE = REPO / "kernel-helper"
ROOT_IMAGE = BUILD / "root.ext4"
PAYLOAD = REPO / "build" / "payload" / "loads.elf"
PROJECT_IMAGE = BUILD / "project.ext4"
