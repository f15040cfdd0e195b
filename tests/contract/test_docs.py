# SPDX-License-Identifier: Apache-2.0
"""The pages document every word that users can type, set or scrape, and no other."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import nightly
from docs.tools import benchmarks, kernels, man, schema
from fakes import snapshot
from gangd.cli.main import commands, parser
from gangd.config import Config
from gangd.control.schema import EVENTS
from gangd.errors import GangError
from gangd.export.collector import families

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_every_metric_is_documented() -> None:
    """docs/metrics.md lists exactly the exported families, with their types."""
    text = (DOCS / "metrics.md").read_text()
    rows = re.findall(r"^\| `(gangd_[a-z_]+)` \|[^|]*\| (\w+) \|", text, re.MULTILINE)
    exported = [(f.name + "_total" * (f.type == "counter"), f.type) for f in families(snapshot())]
    assert sorted(rows) == sorted(exported)


def test_every_command_and_option_is_documented() -> None:
    """docs/gangctl.md has a heading for each command and names each of its options."""
    text = (DOCS / "gangctl.md").read_text()
    _, sections = man.markdown_sections(text)
    named = {name for name in sections if re.fullmatch("[a-z-]+", name)}
    assert named == {c.name for c in commands()} | {"help"}
    shared = {"--json", "--quiet", "--connect", "--bus", "--help", "--domain"}
    general = text[: text.index("\n## ")]
    assert all(f"`{option}" in general or f"/{option}`" in general for option in shared)
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                options = {o for a in command._actions for o in a.option_strings if o.startswith("--")}
                assert [o for o in options - shared if o not in sections[name]] == []


def test_every_error_code_is_documented() -> None:
    """docs/json.md lists the codes of all errors, and nothing else in that table."""

    def codes(kind: type[GangError]) -> set[str]:
        return {kind.code}.union(*map(codes, kind.__subclasses__()))

    text = (DOCS / "json.md").read_text()
    table = text[text.index("| Code |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE)
    assert len(rows) == len(set(rows)) and set(rows) == codes(GangError)


def test_every_event_is_documented() -> None:
    """docs/gangctl.md lists exactly the events that gangd signals."""
    text = (DOCS / "gangctl.md").read_text()
    table = text[text.index("| Event |") :].partition("\n\n")[0]
    first = re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(first))) == sorted(EVENTS)


def test_every_event_of_the_journal_is_documented() -> None:
    """docs/operations.md lists exactly the values of GANGD_EVENT that gangd writes."""
    text = (DOCS / "operations.md").read_text()
    table = text[text.index("| `GANGD_EVENT` |") :].partition("\n\n")[0]
    first = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)[1:]
    sources = "".join(path.read_text() for path in (ROOT / "daemon/gangd").rglob("*.py"))
    written = set(re.findall(r'\babout\("([a-z-]+)"', sources))
    written |= {"marked", "unmarked"}  # answers.py chooses between the two in a variable
    assert sorted(re.findall("`([a-z-]+)`", "".join(first))) == sorted(written)


def test_every_key_of_a_document_is_documented() -> None:
    """docs/json.md names each, and the schema is that of the types."""
    named = set(re.findall(r"`([a-z_]+)`", (DOCS / "json.md").read_text()))
    keys = {field.encode_name for kind in schema.objects() for field in msgspec.structs.fields(kind)}
    assert len(keys) > 100 and keys - named == set()
    assert schema.PAGE.read_text() == schema.rendered(), "run python3 -m docs.tools.schema"


def config_keys() -> Iterator[tuple[str, str, str | None]]:
    """Key, default as TOML writes it, and the range where the type tells one."""
    for section in msgspec.inspect.type_info(Config).fields:  # type: ignore[attr-defined]
        if not isinstance(section.type, msgspec.inspect.StructType):  # docs/policies.md has the others
            continue
        for field in section.type.fields:
            default = field.default if field.default is not msgspec.NODEFAULT else None
            yield f"{section.encode_name}.{field.encode_name}", json.dumps(default), config_range(field.type)


def config_range(kind: Any) -> str | None:
    """Return the range that the third column gives for a type; None where only words can."""
    if isinstance(kind, msgspec.inspect.LiteralType):
        return ", ".join(sorted(kind.values))
    if isinstance(kind, msgspec.inspect.BoolType):
        return "true, false"
    if isinstance(kind, (msgspec.inspect.IntType, msgspec.inspect.FloatType)):
        return f"{kind.ge} to {kind.le}"
    return None


def test_every_config_key_is_documented() -> None:
    """docs/operations.md has one row for each key, with its default and its range."""
    text = (DOCS / "operations.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| `([^`]*)` \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    documented = {key: (default, limits) for key, default, limits in rows}
    expected = {key: (default, limits) for key, default, limits in config_keys()}
    assert set(documented) == set(expected)
    assert len(rows) == len(documented)
    for key, (default, limits) in expected.items():
        assert documented[key][0] == default, key
        assert limits is None or documented[key][1] == limits, key


def test_kernels_page_is_fresh() -> None:
    """docs/kernels.md is what distributions.toml and kernels.toml say now."""
    text = (DOCS / "kernels.md").read_text()
    assert text == kernels.render(), "run `python3 -m docs.tools.kernels`"


def test_nothing_is_claimed_for_a_kernel_that_was_not_run() -> None:
    """A distribution whose kernel was booted or compiled names the row; another one has a page that tells of
    it, or is unknown, and its line says nothing of gangs but what preflight is for."""
    rows = kernels.rows()
    for one in kernels.distributions():
        row = rows.get(one.row or "")
        if one.how in ("booted", "compiled"):
            assert row and bool(row.config) == (one.how == "compiled"), one
            assert one.how == "compiled" or not row.apart, one
            continue
        assert one.how in ("documented", "unknown") and bool(one.source) == (one.how == "documented"), one
        assert "gangs" not in one.line(rows) and kernels.UNSEEN in one.line(rows), one


def test_readme_names_every_command_and_every_page() -> None:
    """README.md names each gangctl command and the page that describes them, and links every page."""
    text = (ROOT / "README.md").read_text()
    line = text[text.index("Commands: ") :].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z][a-z-]*)`", line)) == {c.name for c in commands()}
    assert "(docs/gangctl.md)" in line
    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in text] == []


def test_links_between_pages_lead_somewhere() -> None:
    """To a file, and in a page to one of its headings."""
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("README.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{part}"
        for page in pages
        for target, part in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)[^)]*\)", page.read_text())
        if "://" not in target and not leads(page.parent / target if target else page, part)
    ]
    assert broken == []


def test_the_index_of_decisions_has_each_with_its_status() -> None:
    """docs/decisions/README.md lists the decisions by number, each with the title and status of its text."""
    folder = DOCS / "decisions"
    expected = {}
    for page in folder.glob("[0-9]*.md"):
        text = page.read_text()
        title, status = re.findall(r"\A# (\d+\. .+)\n\n\*\*Status\.\*\* (.+)\n", text)[0]
        assert re.match(r"In force\b|Superseded by \[decision \d+\]", status), page.name
        assert page.name.startswith(f"{int(title.partition('.')[0]):04}-"), page.name
        expected[title] = (page.name, status)
    for title in re.findall(r"^## (\d+\. .+)$", (folder / "history.md").read_text(), re.MULTILINE):
        expected[title] = ("history.md", "History.")
    row = r"^\| (\d+) \| \[(.+)\]\(([^)#]+)[^)]*\) \| (.+) \|$"
    rows = re.findall(row, (folder / "README.md").read_text(), re.MULTILINE)
    assert {f"{number}. {title}": (target, status) for number, title, target, status in rows} == expected
    assert [int(number) for number, *_ in rows] == list(range(1, len(expected) + 1))


def leads(place: Path, part: str) -> bool:
    """True if there is this file, and in it a heading whose anchor is `part` (GitHub's rule)."""
    if not part or not place.exists():
        return place.exists()
    headings = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE)
    return part in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tables_of_benchmarks_are_those_of_the_results() -> None:
    """docs/benchmarks.md quotes docs/results; what other sources were measured with is shown as old."""
    page = benchmarks.PAGE.read_text()
    assert page == benchmarks.rendered(page), "run python3 -m docs.tools.benchmarks"
    assert benchmarks.SEEDS.read_text() == benchmarks.seeds_page()
    readme = benchmarks.README.read_text()
    assert readme == benchmarks.readme(readme)


def test_the_table_of_the_night_is_that_of_its_results() -> None:
    """CONTRIBUTING.md quotes docs/results/nightly.json."""
    page = nightly.PAGE.read_text()
    assert page == nightly.rendered(page, nightly.outcomes()), "run make nightly"


def test_an_old_result_is_shown_as_old(tmp_path: Path) -> None:
    """The page calls an old result old, and one of this tree not; a missed bar says so."""
    row = {
        "what": "a ratio",
        "wanted": 2.0,
        "most": False,
        "measured": 1.0,
        "met": False,
        "n": 5,
        "failed": 1,
    }
    conditions = benchmarks.conditions
    origin = {
        "sources": conditions.sources("matrix", True),
        "emulator": benchmarks.emulator.fingerprint(),
        "guest": conditions.guest("matrix"),
        "driver": conditions.driver("matrix"),
        "clock": "real",
    }
    document = {"part": "matrix", "origin": origin, "judged": [row]}
    (tmp_path / "matrix.json").write_text(json.dumps(document))
    new = benchmarks.block(tmp_path)
    assert "old:" not in new and "| a ratio | >= 2 | 1 |  | 5 | 1 | **missed** |" in new
    for name in ("sources", "emulator", "guest", "driver"):
        (tmp_path / "matrix.json").write_text(json.dumps({**document, "origin": {**origin, name: "another"}}))
        assert "old: measured before the last change of" in benchmarks.block(tmp_path)
