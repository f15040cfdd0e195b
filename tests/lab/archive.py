# SPDX-License-Identifier: Apache-2.0
"""Fetches packages of any Debian suite with apt, verified as usual, without touching the toolbox's own apt.

Every suite has its own lists and sources below build/lab/apt. The mirror is the one the toolbox
was made from, hence the machine's.
"""

import re
from pathlib import Path

from lab.errors import LabError
from lab.paths import APT
from lab.shell import call, lock, say

KERNELS = "pool/main/l/linux"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def fetch(suite: str, patterns: list[str], target: Path) -> list[Path]:
    """Download the newest package matching each pattern into `target`; returns the files.

    Rows of a suite share its lists, and two of them a folder of packages: one process at a time works there.
    """
    with lock(f"apt-{suite}"):
        return _fetch(suite, patterns, target)


def _fetch(suite: str, patterns: list[str], target: Path) -> list[Path]:
    options = _options(suite)
    fresh = not any((APT / suite / "lists").glob("*_Packages*"))
    if fresh:
        _update(suite, options)
    target.mkdir(parents=True, exist_ok=True)
    try:
        return [_download(options, _newest(suite, options, pattern), target) for pattern in patterns]
    except LabError:
        if fresh:
            raise
    # The archive moves on: old lists name packages it no longer has.
    _update(suite, options)
    return [_download(options, _newest(suite, options, pattern), target) for pattern in patterns]


def fetch_pool(folder: str, file: str, sha256: str, target: Path) -> Path:
    """Download a file that no index names any more; what it must be is known by its SHA256."""
    path = target / file
    if not path.exists():
        say(f"downloading {file}")
        target.mkdir(parents=True, exist_ok=True)
        address = f"{mirror().rstrip('/')}/{folder}/{file}"
        helper = ["/usr/lib/apt/apt-helper", "download-file", address, str(path), f"SHA256:{sha256}"]
        call(helper, f"download {file}")
    return path


def mirror() -> str:
    """The mirror's address in the toolbox's own (one line) apt sources."""
    sources = Path("/etc/apt/sources.list")
    for line in sources.read_text().splitlines():
        words = re.sub(r"\[.*?\]", "", line).split()
        if len(words) >= 3 and words[0] == "deb":
            return words[1]
    raise LabError(f"cannot fetch packages: {sources} of the toolbox names no mirror")


def version_key(name: str) -> list[tuple[int, str]]:
    """Sorts 6.18.9 before 6.18.15."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _options(suite: str) -> list[str]:
    home = APT / suite
    for folder in ("lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    sources = home / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": home / "lists",
        "Dir::Cache": home / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _update(suite: str, options: list[str]) -> None:
    say(f"reading the package lists of {suite}")
    call(["apt-get", *options, "-qq", "--error-on=any", "update"], f"read the package lists of {suite}")


def _newest(suite: str, options: list[str], pattern: str) -> str:
    names = call(["apt-cache", *options, "pkgnames"], f"list the packages of {suite}").split()
    matches = [name for name in names if re.fullmatch(pattern, name)]
    if not matches:
        raise LabError(f"cannot fetch packages from {suite}: none there is named like {pattern}")
    return max(matches, key=version_key)


def _download(options: list[str], package: str, target: Path) -> Path:
    say(f"downloading {package}")
    before = set(target.glob(f"{package}_*.deb"))
    call(["apt-get", *options, "-qq", "download", package], f"download {package}", cwd=target)
    files = set(target.glob(f"{package}_*.deb"))
    return max(files - before or files, key=lambda file: file.stat().st_mtime)
