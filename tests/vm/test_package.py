# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built by Debian's tools, and what is in them. Their life on a system without gangd is
in checks/package.py, where libvirt is monolithic, and checks/modular.py, where it is modular. The RPM
packages are built on Debian, and have the same files; no test installs them.
"""

import re
import subprocess
from pathlib import Path

import pytest

from lab import deb, packages, rpm
from lab.paths import MODULE_SOURCE, REPO
from lab.shell import lock

pytestmark = pytest.mark.lab

NAMES = ("gangd", "gangd-dkms")
COMPLETION = ("bash-completion/completions/gangctl", "zsh/vendor-completions/_gangctl")
# The RPM packages have these of Debian's paths elsewhere, or not at all.
ELSEWHERE = {"usr/share/zsh/vendor-completions/_gangctl": "usr/share/zsh/site-functions/_gangctl"}
DEBIANS = re.compile(r"etc/apparmor\.d/|usr/share/lintian/|usr/share/doc/[^/]+/(changelog\.gz|copyright)$")


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """The packages by name."""
    return {path.name.partition("_")[0]: path for path in deb.build()}


@pytest.fixture(scope="module")
def rpms() -> dict[str, Path]:
    """The RPM packages by name."""
    return {path.name.partition("-0")[0]: path for path in rpm.build()}


def unpacked(package: Path, folder: Path) -> set[str]:
    """Unpack it; the files it has, from the root."""
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return installed(folder)


def ask_rpm(package: Path, *words: str) -> list[str]:
    """Lines of rpm's answer about a package file."""
    done = subprocess.run(["rpm", "-qp", *words, package], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def make(target: str, root: Path, *variables: str) -> None:
    """Two of these at once in one tree break each other: they share setuptools' build folder."""
    with lock("project"):
        subprocess.run(["make", "-s", "-C", REPO, target, f"DESTDIR={root}", *variables], check=True)


def installed(root: Path) -> set[str]:
    """The files below a directory that `make install` has filled."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_uninstall_leaves_nothing(tmp_path: Path) -> None:
    """Nor does an install leave an older version's files beside its own."""
    make("install", tmp_path)
    old = tmp_path / "usr/lib/python3/dist-packages/gang_policies/old.py"
    old.touch()
    make("install", tmp_path)
    assert not old.exists()
    make("uninstall", tmp_path)
    assert installed(tmp_path) == set()


def test_install_moves_the_files_that_only_debian_has(tmp_path: Path) -> None:
    """APPARMORDIR= leaves the profile out, ZSHDIR= moves the completion; uninstall follows both."""
    variables = ("APPARMORDIR=", "ZSHDIR=/usr/share/zsh/site-functions")
    make("install", tmp_path, *variables)
    found = installed(tmp_path)
    assert set(ELSEWHERE.values()) <= found
    assert not {path for path in found if path in ELSEWHERE or DEBIANS.match(path)}
    make("uninstall", tmp_path, *variables)
    assert installed(tmp_path) == set()


def test_both_are_built(built: dict[str, Path]) -> None:
    """The daemon is of this architecture, the module's source is of all."""
    assert set(built) == set(NAMES)
    assert [built[name].stem.rpartition("_")[2] for name in NAMES] == ["amd64", "all"]


@pytest.mark.parametrize("name", NAMES)
def test_lintian_finds_no_error(built: dict[str, Path], name: str) -> None:
    """Debian's own checker; what it warns of is printed."""
    packages.need(("lintian",), "it checks the packages")
    words = ["lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", built[name]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_what_make_install_installs(built: dict[str, Path], tmp_path: Path) -> None:
    """File by file, but for what Python compiles and pip notes, and what only Debian has a use for; its
    man pages are compressed."""
    make("install", tmp_path / "made")
    made = installed(tmp_path / "made")
    theirs = ("__pycache__", "direct_url.json", "/RECORD")
    added = {f"usr/share/{name}" for name in ("doc/gangd/changelog.gz", "doc/gangd/copyright")}
    added.add("usr/share/lintian/overrides/gangd")
    found = unpacked(built["gangd"], tmp_path / "unpacked")
    found = {path.removesuffix(".gz") if path.startswith("usr/share/man/") else path for path in found}
    assert added <= found
    assert found - added == {path for path in made if not any(word in path for word in theirs)}
    assert {f"usr/share/{name}" for name in COMPLETION} <= found


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ma"], ["mark"]),
        (["list", "--in"], ["--inactive"]),
        (["mark", "a\\ b", "--pol"], ["--policy"]),
        (["event", "--event", "libvirt"], ["libvirt-found", "libvirt-lost"]),
        (["event", "--event=libvirt-f"], ["-P 1 *=", "libvirt-found"]),
        (["config-check", ""], ["files"]),
        (["mark", "$(touch never)", ""], []),
    ],
)
def test_zsh_is_offered_what_gangctl_knows(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """The function that zsh loads, with what zsh has for it alone replaced by what prints its arguments."""
    packages.need(("zsh",), "it completes gangctl's words")
    program = tmp_path / "gangctl"
    code = "import sys; from gangd.cli.main import main; sys.exit(main())"
    program.write_text(f"#!/bin/sh\nexec python3 -c '{code}' \"$@\"\n")
    program.chmod(0o755)
    script = (
        "compset() { print -r -- $* }; compadd() { (( ${#${(P)2}} )) && print -rl -- ${(P)2} }\n"
        f"_files() {{ print files }}; fpath=({REPO}/daemon/completion); autoload -Uz _gangctl\n"
        'words=(gangctl "$@"); CURRENT=$#words; _gangctl'
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", script, "zsh", *words],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "PYTHONPATH": f"{REPO}/daemon",
            "GANGD_BUS": "unix:path=/none",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")
    assert not (tmp_path / "never").exists()


def test_no_file_is_in_both(built: dict[str, Path], tmp_path: Path) -> None:
    """dpkg refuses a file that another package has."""
    first, second = (unpacked(built[name], tmp_path / name) for name in NAMES)
    assert first & second == set()


def test_it_depends_on_what_it_imports(built: dict[str, Path]) -> None:
    """The package depends on what dh-python and dpkg-shlibdeps found that it imports."""
    words = ["dpkg-deb", "-f", built["gangd"], "Depends"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    needed = {part.split()[0] for part in done.stdout.split(",")}
    assert needed >= {"python3", "libbpf1", "python3-libvirt", "python3-msgspec", "python3-sdbus",
                      "python3-prometheus-client", "python3-systemd"}  # fmt: skip


def test_the_modules_source_is_whole(built: dict[str, Path], tmp_path: Path) -> None:
    """DKMS builds the tree's sources, and the drop-in that lets gangd use the module is beside them."""
    found = unpacked(built["gangd-dkms"], tmp_path)
    source = tmp_path / "usr/src/gang-0.1.0"
    for part in ("module", "include"):
        for path in (MODULE_SOURCE / part).iterdir():
            if path.suffix in (".c", ".h") or path.name in ("Kbuild", "Makefile"):
                assert (source / part / path.name).read_text() == path.read_text()
    assert (source / "dkms.conf").read_text() == (MODULE_SOURCE / "dkms.conf").read_text()
    assert "usr/lib/systemd/system/gangd.service.d/module.conf" in found
    assert not [path for path in found if path.endswith((".o", ".ko", ".mod"))]


@pytest.mark.parametrize("name", NAMES)
def test_the_rpm_has_what_debians_package_has(
    built: dict[str, Path], rpms: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """File by file, but for licenses, which RPM has a folder for, and what only Debian has a use for.
    rpmbuild itself refuses a file of `make install` that the spec does not list, and one that it lists in
    vain. A package owns each folder that is its own."""
    debians = {path for path in unpacked(built[name], tmp_path) if not DEBIANS.match(path)}
    listed = ask_rpm(rpms[name], "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]")
    split = [(line[0], line.split(maxsplit=1)[1].removeprefix("/")) for line in listed]
    folders = {path for kind, path in split if kind == "d"}
    found = {path for kind, path in split if kind != "d"}
    assert {p for p in found if not p.startswith("usr/share/licenses/")} == {
        ELSEWHERE.get(p, p) for p in debians
    }
    own = {str(folder) for path in found for folder in Path(path).parents if "gang" in folder.name}
    assert own <= folders
