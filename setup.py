# SPDX-License-Identifier: Apache-2.0
"""Packages, the libbpf extension, the BPF objects, entry points; the rest is pyproject.toml."""

import os
import shlex
import subprocess
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent.resolve()
CSRC = Path("daemon/gangd/bpf/csrc")
QUIET = ["-Wno-missing-field-initializers"]  # {0} ends every table of the C API
OBJECTS = Path("gangd/bpf/objects")


def pkg_config(flag: str) -> list[str]:
    """Flags for libbpf >= 1.4; a sentence instead of a compiler error when it is not there."""
    command = [os.environ.get("PKG_CONFIG", "pkg-config"), flag, "libbpf >= 1.4"]
    try:
        return shlex.split(subprocess.check_output(command, text=True))
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"gangd needs pkg-config and libbpf 1.4 or newer (libbpf-dev): {error}") from None


class BuildExt(build_ext):
    """build_ext that also compiles kernel-helper/bpf/*.bpf.c to gangd/bpf/objects/*.bpf.o."""

    def run(self) -> None:
        # Asked for here, not at import: `setup.py sdist` needs no libbpf.
        for extension in self.extensions:
            extension.extra_compile_args += pkg_config("--cflags")
            extension.extra_link_args += pkg_config("--libs")
        super().run()
        in_tree = self.inplace or self.editable_mode
        out = (HERE / "daemon" if in_tree else Path(self.build_lib).resolve()) / OBJECTS
        self.spawn(["make", "--no-print-directory", "-C", str(HERE / "kernel-helper"), f"OUT={out}"])
        for dependency_list in out.glob("*.d") if not in_tree else ():
            dependency_list.unlink()


core = Extension(
    "gangd.bpf._core",
    sources=sorted(str(path) for path in CSRC.glob("*.c")),
    depends=[str(CSRC / "core.h")],
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    extra_compile_args=["-std=gnu11", "-Wall", "-Wextra", *QUIET, "-fvisibility=hidden"],
    py_limited_api=True,
)

setup(
    name="gangd",
    version="0.1.0",
    description="Gang scheduling for libvirt KVM guests, driven by a host daemon",
    license="Apache-2.0 AND GPL-2.0-only",
    license_files=["LICENSE", "LICENSES/*"],
    python_requires=">=3.11",
    # gangd imports these; Debian: python3-libvirt, -sdbus, -prometheus-client, -msgspec, -systemd.
    # By ctypes: libsystemd, which sdbus has too, and on a host without systemd libcgroup (Debian: libcgroup3)
    # for its three kinds of cgroup.
    install_requires=[
        "libvirt-python",  # domains, their events and their vCPU threads
        "sdbus",  # the bus name org.gangd.Gangd1, and systemd's machine scopes
        "prometheus-client",  # the exporter's text formats
        "msgspec",  # typed, validated configuration and JSON output
        "systemd-python",  # records with fields in the systemd journal; imported under systemd only
    ],
    package_dir={"gangd": "daemon/gangd", "gang_policies": "policies/gang_policies"},
    packages=[
        *find_packages(where="daemon", include=["gangd", "gangd.*"]),
        *find_packages(where="policies", include=["gang_policies", "gang_policies.*"]),
    ],
    package_data={"gangd": ["py.typed"], "gangd.bpf": ["_core.pyi"]},
    # The C sources are for the sdist (MANIFEST.in), not for site-packages.
    include_package_data=False,
    ext_modules=[core],
    cmdclass={"build_ext": BuildExt},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    entry_points={
        "console_scripts": [
            "gangd = gangd.__main__:program",
            "gangd-exporter = gangd.export.main:main",
            "gangctl = gangd.cli.main:main",
        ],
        "gangd.policies": [
            "adaptive = gang_policies.adaptive:POLICY",
            "balance = gang_policies.balance:POLICY",
            "relaxed = gang_policies.relaxed:POLICY",
            "strict = gang_policies.strict:POLICY",
        ],
    },
    zip_safe=False,
)
