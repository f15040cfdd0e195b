# SPDX-License-Identifier: Apache-2.0
"""The frame that gangd's pages for people have in common, and the pages that need no gangd."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gangd.control.text import shortened

SENTENCE = 300  # characters

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c1f23; --faint: #5c6570; --line: #d9dee3;
  --good: #1f7a8c; --bad: #c2540a; --track: #e8ebee }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e6e9ec; --faint: #9aa4ae;
  --line: #343a41; --good: #4fb3c8; --bad: #f0924c; --track: #2a2f35 } }
body { background: var(--page); color: var(--text); font: 15px/1.45 system-ui, sans-serif;
  margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem }
a { color: var(--good) } nav a { margin-right: 1rem } p { margin: .3rem 0 } .note { margin-top: 1rem }
small, .faint { color: var(--faint); font-size: .85rem } small { display: block; font-weight: 400 }
dl { display: grid; gap: .2rem 1rem; grid-template-columns: max-content 1fr; margin: 1rem 0 }
dt { color: var(--faint) } dd { margin: 0; overflow-wrap: anywhere } .bad { color: var(--bad) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .8rem .35rem 0; text-align: left;
  vertical-align: top } thead th { font-weight: 600; vertical-align: bottom }
tbody th { font-weight: 600; max-width: 18rem; overflow-wrap: anywhere }
.number { padding-right: 1.6rem; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
svg { display: block; height: .5rem; margin-top: .2rem; width: 7rem } .track { fill: var(--track) }
.more { fill: var(--good) } .less { fill: var(--bad) }
.either { fill: var(--faint) }
.picture { margin-top: .6rem; max-height: 40rem; overflow-y: auto } img { display: block }
@media (prefers-color-scheme: dark) { img { filter: brightness(.85) } }
"""
LINKS = """<nav><a href="metrics">metrics</a><a href="runbooks/">runbooks</a></nav>"""


def document(title: str, body: str) -> str:
    """An HTML page in gangd's style. body: HTML."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{safe(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def index(runbooks: Iterable[str]) -> str:
    """The list of the runbooks, as a page below which they are."""
    names = [escape(name) for name in sorted(runbooks)]
    items = "".join(f'<li><a href="{name}">{name.removesuffix(".md")}</a></li>' for name in names)
    some = f"<ul>{items}</ul>" if items else "<p>The runbooks are not installed on this host.</p>"
    return document("gangd: runbooks", f'<h1>Runbooks</h1><nav><a href="../">gangd</a></nav>\n{some}')


def absent() -> str:
    """The page of an exporter whose gangd does not answer."""
    said = '<p class="bad">gangd does not answer. GangdDown, in the runbooks, says what to do.</p>'
    return document("gangd", f"<h1>gangd</h1>{LINKS}\n{said}")


def safe(text: str, limit: int = SENTENCE) -> str:
    """A text as HTML that shows it: on one line, cut, and nothing in it is markup or runs backwards."""
    return escape(shortened(text, limit))
