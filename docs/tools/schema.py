# SPDX-License-Identifier: Apache-2.0
"""Writes docs/gangd.schema.json: the JSON Schema (2020-12) of every document, from the types in gangd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gangd.cli.structs import Error
from gangd.control.structs import Part, Whole

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/gangd.schema.json"


def documents() -> list[type[msgspec.Struct]]:
    """Return the types of all documents."""
    return [*_below(Whole), Error]


def objects() -> list[type[msgspec.Struct]]:
    """Return the types of all documents, and of all objects in them."""
    return [*_below(Whole), *_below(Part)]


def _below(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    return [found for one in kind.__subclasses__() for found in (one, *_below(one))]


def rendered() -> str:
    """Return the text of docs/gangd.schema.json."""
    references, found = msgspec.json.schema_components(documents(), ref_template="#/$defs/{name}")
    definitions: dict[str, Any] = {name: found[name] for name in sorted(found)}
    for definition in definitions.values():
        definition["required"] = list(definition["properties"])  # every key is always there
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Documents of gangd"}
    return json.dumps({**about, "anyOf": list(references), "$defs": definitions}, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(rendered())
