# SPDX-License-Identifier: Apache-2.0
"""The source of an emulator as Debian's archive holds it, with the patches of a folder beside this file."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import archive
from lab.errors import LabError
from lab.paths import BUILD
from lab.shell import call, say

PATCHES = Path(__file__).with_name("patches")


@dataclass(frozen=True)
class Source:
    """file: in the archive's folder `pool`, known by its SHA256; patches: the name of their folder."""

    pool: str
    file: str
    sha256: str
    patches: str

    def fingerprint(self, *words: str) -> str:
        """A hash of the source, of its patches, and of what else decides how it is compiled."""
        digest = hashlib.sha256("\0".join([self.sha256, *words]).encode())
        for patch in self.ordered():
            digest.update(patch.read_bytes())
        return digest.hexdigest()

    def ordered(self) -> list[Path]:
        """Return the patches in the order in which they are applied."""
        return sorted((PATCHES / self.patches).glob("*.patch"))

    def unpack(self, home: Path) -> Path:
        """Unpack the source into a new folder `home`, patch it, and return its tree. Raises LabError."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        packed = archive.fetch_pool(self.pool, self.file, self.sha256, BUILD / "sources")
        say(f"unpacking {packed.name}")
        call(["tar", "-C", home, "--no-same-owner", "-xf", packed], f"unpack {packed.name}")
        trees = [path.parent for path in home.glob("*/configure")]
        if len(trees) != 1:
            raise LabError(f"cannot unpack {packed.name}: it holds {len(trees)} trees instead of one")
        for patch in self.ordered():
            call(["patch", "-p1", "--fuzz=0", "-i", patch], f"apply {patch.name}", cwd=trees[0])
        return trees[0]
