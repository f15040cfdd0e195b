# SPDX-License-Identifier: Apache-2.0
"""Completion of the word that a user types: in bash, in zsh (daemon/completion), at gangctl's prompt.

The words come from the parser, and from the daemon where a domain or policy is due. They go back into
a user's command line, and names of domains are untrusted text: a domain with a name that a shell could
take for anything but a plain word is offered by its UUID.
"""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser
from collections.abc import Callable, Iterable, Sequence

from gangd.control import client as control
from gangd.control.client import Client
from gangd.errors import GangError

TIMEOUT_SECONDS = 2.0  # a user waits at the prompt
_PLAIN = re.compile(r"[\w][\w.+-]*")


def candidates(parser: ArgumentParser, words: Sequence[str], bus: str | None = None) -> list[str]:
    """Whole words that could replace the last of `words`, sorted; none when nothing is known.

    words: those after the program's name. bus: as for connect(), unless `words` name one.
    """
    # bash has = as a word of its own: --bus=session is three of them
    *before, current = [word for word in words if word != "="] or [""]
    option: Action | None = None  # whose value is due
    place = 0  # positional arguments of this parser that were given
    for word in before:
        if option is not None:
            bus = word if option.dest == "bus" else bus
            place += _replaces(parser, option)
            option = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            found = parser._option_string_actions.get(name)
            if found is not None and found.dest == "bus" and equals:
                bus = value
            place += int(found is not None and bool(equals) and _replaces(parser, found))
            option = found if found is not None and found.nargs is None and not equals else None
        else:
            due = _positional(parser, place)
            place += 1
            if due is not None and isinstance(due.choices, dict):
                parser, place = due.choices.get(word, ArgumentParser(add_help=False)), 0
    if option is None and current.startswith("-"):
        found_words: Iterable[str] = parser._option_string_actions
    else:
        found_words = _values(option or _positional(parser, place), bus)
    return sorted({word for word in found_words if word.startswith(current)})


def _positional(parser: ArgumentParser, place: int) -> Action | None:
    positional = [action for action in parser._actions if not action.option_strings]
    if place >= len(positional) and positional and positional[-1].nargs == "*":
        return positional[-1]  # it takes all that come
    return positional[place] if place < len(positional) else None


def _replaces(parser: ArgumentParser, option: Action) -> bool:
    """True if the option is another spelling of an argument that is given once."""
    return any(other.dest == option.dest and not other.option_strings for other in parser._actions)


def _values(action: Action | None, bus: str | None) -> Iterable[str]:
    if action is None:
        return []
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    ask = _ASK.get(str(action.metavar))
    if ask is None:
        return []
    try:
        return ask(control.connect(bus, TIMEOUT_SECONDS, start=False))
    except GangError:
        return []  # a message would land in the middle of what is being typed


def _domains(client: Client) -> list[str]:
    return [d["name"] if plain(d["name"]) else d["uuid"] for d in client.domains(all=True)["domains"]]


def _policies(client: Client) -> list[str]:
    return [p["policy"] for p in client.policies()["policies"] if plain(p["policy"])]


def _choices(client: Client) -> list[str]:
    """Return the names that a mark may give as its policy."""
    profiles = [p["profile"] for p in client.profiles()["profiles"] if plain(p["profile"])]
    return [*_policies(client), *profiles, "off"]


# By the name that an argument has in the help.
_ASK: dict[str, Callable[[Client], list[str]]] = {"DOMAIN": _domains, "P": _choices, "POLICY": _policies}


def plain(name: str) -> bool:
    """True if `name` is one word in any shell, no option, and not taken for a domain's id."""
    return bool(_PLAIN.fullmatch(name)) and not name.isdecimal()
