# SPDX-License-Identifier: Apache-2.0
"""The man pages are fresh, whole, and read without a complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.tools import man
from gangd.cli.main import commands

# The requests and macros we use; anything else at the start of a line is text that was not escaped.
KNOWN = {"TH", "SH", "SS", "PP", "TP", "RS", "RE", "nf", "fi", "B", "I", "BR", "\\"}
PAGES = man.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_fresh(path: Path) -> None:
    assert path.read_text() == PAGES[path], "run `make man`"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_made_of_known_requests(path: Path) -> None:
    """No text begins like a request, examples end, every escape is one of ours."""
    text = path.read_text()
    lines = text.splitlines()
    requests = [re.split(r"[\s\"]", line[1:])[0] for line in lines if line[:1] in (".", "'")]
    assert set(requests) <= KNOWN
    assert requests.count("nf") == requests.count("fi") and requests.count("RS") == requests.count("RE")
    escapes = set(re.findall(r"\\(f.|\[(?=u[0-9A-F]{4}\])|.)", text))
    assert escapes <= {"fB", "fI", "fR", "-", "e", "&", '"', " ", "["}
    assert text.count("\\fB") + text.count("\\fI") == text.count("\\fR")
    shown = re.sub(r"^\.nf$.*?^\.fi$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "" not in lines and not re.search(r"`|\*", shown)


def test_every_command_and_option_is_in_the_page() -> None:
    text = PAGES[man.DOCS / "gangctl.1"]
    assert [name for name in (c.name for c in commands()) if f".SS {man.escaped(name)}\n" not in text] == []
    assert all(option in text for option in ("\\-\\-json", "\\-\\-explain", "\\-\\-timestamp", "\\-\\-batch"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_formatter_has_no_complaint(path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-b", "-z", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_markup_becomes_roff() -> None:
    text = "Say `-x` or *so\nit is*, [here](a.md).\n.dot\n\n    # code\\n\n\n"
    text += "| A | B | C |\n|---|---|---|\n| `k` | 1 | why |"
    assert list(man.roff(text)) == [
        ".PP", "Say \\fB\\-x\\fR or \\fIso", "it is\\fR, here.", "\\&.dot",
        ".PP", ".RS 4", ".nf", "# code\\en", ".fi", ".RE",
        ".TP", "\\fBk\\fR", "why", "(b: 1)",
    ]  # fmt: skip
