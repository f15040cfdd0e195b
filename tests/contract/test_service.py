# SPDX-License-Identifier: Apache-2.0
"""The units, the profiles and the package: what can be known of them without installing anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gangd import __version__, config
from gangd.config import Config

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = ROOT / "systemd"
DEBIAN = SYSTEMD / "debian"
SPEC = SYSTEMD / "rpm" / "gangd.spec"
# The exposure that systemd-analyze sees in a unit, 0 to 10: nearly every line that is taken away adds to it.
EXPOSURE = {"gangd": 2.1, "gangd-exporter": 1.1}
STARTED = ("gangd", "gangd-exporter")


def tool(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root directory with nothing but our units and what they start."""
    units, programs = tmp_path / "usr/lib/systemd/system", tmp_path / "usr/bin"
    units.mkdir(parents=True)
    programs.mkdir(parents=True)
    for name in STARTED:
        shutil.copy(SYSTEMD / f"{name}.service", units)
        (programs / name).touch(0o755)
    return tmp_path


def security(tree: Path, name: str) -> tuple[float, str]:
    """systemd-analyze's figure and table for one unit."""
    analyze = [tool("systemd-analyze"), "--no-pager", f"--root={tree}", "--offline=yes", "security"]
    done = subprocess.run([*analyze, f"{name}.service"], capture_output=True, text=True, check=True)
    figure = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
    assert figure, done.stdout + done.stderr
    return float(figure[1]), done.stdout


@pytest.mark.parametrize("name", STARTED)
def test_exposure(tree: Path, name: str) -> None:
    """A unit loses no part of its sandbox unnoticed."""
    figure, table = security(tree, name)
    assert figure == EXPOSURE[name], "\n".join(line for line in table.splitlines() if "✗" in line)


def test_the_modules_rights_are_in_its_drop_in(tree: Path) -> None:
    """gangd needs more where gang.ko schedules, and only there."""
    before, _ = security(tree, "gangd")
    drop_in = tree / "usr/lib/systemd/system/gangd.service.d"
    drop_in.mkdir()
    shutil.copy(SYSTEMD / "gangd-module.conf", drop_in / "module.conf")
    after, _ = security(tree, "gangd")
    print(f"gangd: {before}, with the module's drop-in {after}")
    assert before < after
    assert "PrivateDevices=yes" in (SYSTEMD / "gangd.service").read_text()


@pytest.mark.parametrize("name", STARTED)
def test_units_have_no_mistakes(tree: Path, name: str) -> None:
    """systemd-analyze verify has nothing to say of our lines; units that are not there are not ours."""
    words = [tool("systemd-analyze"), f"--root={tree}", "verify", "--man=no", "--recursive-errors=no"]
    done = subprocess.run([*words, f"{name}.service"], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if f"{name}.service" in line] == []


def test_no_libvirt_is_started_for_gangd() -> None:
    """The unit starts after either libvirt, and neither pulls one in nor goes with one: libvirtd.service and
    virtqemud.service conflict, so that starting one of them stops the other."""
    lines = re.findall(r"^(\w+)=(.*)$", (SYSTEMD / "gangd.service").read_text(), re.MULTILINE)
    libvirt = re.compile(r"\bvirt\w+d\b|\blibvirt\w*")
    assert {key for key, value in lines if libvirt.search(value)} - {"Description"} == {"After"}
    after = [value for key, value in lines if key == "After"]
    for unit in ("libvirtd", "virtqemud"):
        assert {f"{unit}.service", f"{unit}.socket"} <= set(" ".join(after).split())
    assert "/run/libvirt/{libvirt-sock,virtqemud-sock} rw," in (SYSTEMD / "apparmor/gangd").read_text()


def test_the_example_shows_every_default(tmp_path: Path) -> None:
    """docs/gangd.toml sets nothing as shipped; without the comment signs it sets every key to its default."""
    text = (ROOT / "docs/gangd.toml").read_text()
    assert config.load(ROOT / "docs/gangd.toml") == Config()
    (tmp_path / "full.toml").write_text(re.sub(r"^#(?=[a-z_]+ =)", "", text, flags=re.MULTILINE))
    assert config.load(tmp_path / "full.toml") == Config()
    sections = {name: getattr(Config(), name) for name in Config.__struct_fields__}
    wanted = {name: list(getattr(keys, "__struct_fields__", ())) for name, keys in sections.items()}
    parts = re.split(r"^\[([a-z]+)\]$", text, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    shown = {name: re.findall(r"^#([a-z_]+) =", part, re.MULTILINE) for name, part in texts.items()}
    assert {name: sorted(keys) for name, keys in shown.items()} == {
        name: sorted(keys) for name, keys in wanted.items() if keys
    }


def test_the_package_has_the_programs_version() -> None:
    """Changelog, spec, DKMS and Python agree."""
    changelog = (DEBIAN / "changelog").read_text()
    assert changelog.startswith(f"gangd ({__version__}) ")
    assert re.findall(r"^Version:\s+(\S+)$", SPEC.read_text(), re.MULTILINE) == [__version__]
    assert f'PACKAGE_VERSION="{__version__}"' in (ROOT / "kernel-helper/dkms.conf").read_text()
    places = {line.split()[1] for line in (DEBIAN / "gangd-dkms.install").read_text().splitlines()}
    assert places == {f"usr/src/gang-{__version__}"}


def test_the_package_needs_what_setup_needs() -> None:
    """Debian's names of what setup.py requires are among what the package is built with, so that dh-python
    finds them. The spec names them as RPM's generator for Python does."""
    named = {"libvirt-python": "libvirt", "systemd-python": "systemd"}
    wanted = re.search(r"install_requires=\[(.*?)\]", (ROOT / "setup.py").read_text(), re.DOTALL)
    assert wanted
    names = re.findall(r'"([a-z-]+)",', wanted[1])
    assert len(names) == len(wanted[1].strip().splitlines())
    control = (DEBIAN / "control").read_text()
    assert [n for n in names if f" python3-{named.get(n, n)}," not in control] == []
    assert re.findall(r"^Requires:\s+python3dist\((.*)\)$", SPEC.read_text(), re.MULTILINE) == sorted(names)
    shipped = (ROOT / "tests/lab/packages.txt").read_text().splitlines()
    assert [n for n in names if f"python3-{named.get(n, n)}" not in shipped] == []


def test_the_packaging_page_names_every_file_of_the_spec() -> None:
    """docs/packaging.md has each path of the spec's lists, with the spec's macro."""
    lists = SPEC.read_text().partition("%files")[2]
    listed = re.findall(r"^(?:%doc )?(%\{_?\w+\}/\S+)$", lists, re.MULTILINE)
    page = (ROOT / "docs/packaging.md").read_text()
    assert len(listed) > 15
    assert [path for path in listed if path not in page] == []
