# SPDX-License-Identifier: Apache-2.0
"""Calls gangd with anything, as whoever runs this: fuzz_caller.py ADDRESS EXAMPLES.

Prints one JSON document: how many calls were made, and for how many of them each error name, or a reply, came
back. Fails, with the example on stderr, when a reply or an error shows the inside of gangd.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sdbus import SdBus
from sdbus.sd_bus_internals import SdBusBaseError

from gangd.control.names import ERROR_PREFIX, INTERFACE, NAME, PATH
from gangd.control.wire import name_and_text, open_bus

# The methods take these, as docs/org.gangd.Gangd1.xml has it: such a call reaches our own code.
SIGNATURES = {
    "Mark": "sa{sv}", "Set": "sa{sv}", "Unmark": "sa{sv}", "Undo": "sa{sv}", "Resume": "sa{sv}",
    "SetSmt": "sa{sv}", "Refresh": "", "List": "b", "DomainInfo": "s", "VcpuInfo": "s", "Topology": "",
    "Plan": "s", "Stats": "s", "Status": "", "Policies": "", "Profiles": "", "Smt": "", "Metrics": "b",
    "Advise": "s", "Since": "s", "Overview": "",
}  # fmt: skip
OTHERS = {
    "org.freedesktop.DBus.Properties": ("Get", "Set", "GetAll"),
    "org.freedesktop.DBus.ObjectManager": ("GetManagedObjects",),
    "org.freedesktop.DBus.Introspectable": ("Introspect",),
    # Not GetMachineId: without an /etc/machine-id, as in the toolbox, sd-bus does not reply at all.
    "org.freedesktop.DBus.Peer": ("Ping", "Pong"),
    f"{INTERFACE}.Domain": ("Name", "Mark"),
    INTERFACE: ("Nope", "mark", "Version"),
}
INSIDE = ("Traceback", 'File "', "secret", ".py", "0x7f", "python")
BUS_ERROR = "org.freedesktop.DBus.Error."
SILENT = {f"{BUS_ERROR}{name}" for name in ("NoReply", "Timeout", "TimedOut", "Disconnected")}
ANSWER_SECONDS = 10.0

INTEGERS = {"y": (0, 255), "n": (-(2**15), 2**15 - 1), "q": (0, 2**16 - 1), "i": (-(2**31), 2**31 - 1),
            "u": (0, 2**32 - 1), "x": (-(2**63), 2**63 - 1), "t": (0, 2**64 - 1)}  # fmt: skip
WORDS = ("", " ", "web", "db", "3", "../..", "\x1b[31m", "relaxed", "strict", "on", "policy", "weight", "all",
         "config", "live", "interactive", "x" * 2000, "%s%n", "\u202e", "{}", INTERFACE)  # fmt: skip
PATHS = (PATH, f"{PATH}/domain", f"{PATH}/domain/x", "/", "/org/gangd")
# libvirt's names, and all else that sd-bus carries: UTF-8 without a NUL and without what is no character.
TEXT = st.one_of(
    st.sampled_from(WORDS), st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\0"))
)

Typed = tuple[str, Any]  # a D-Bus type, a value of it


def leaves() -> st.SearchStrategy[Typed]:
    """The basic types."""
    numbers = [st.tuples(st.just(kind), st.integers(low, high)) for kind, (low, high) in INTEGERS.items()]
    return st.one_of(
        *numbers,
        st.tuples(st.just("b"), st.booleans()),
        st.tuples(st.just("d"), st.floats()),
        st.tuples(st.just("s"), TEXT),
        st.tuples(st.just("o"), st.sampled_from(PATHS)),
        st.tuples(st.just("g"), st.sampled_from(["", "s", "a{sv}", "(ii)"])),
    )


def grown(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Arrays, structures, dictionaries and variants of what there is."""
    return st.one_of(
        st.binary(max_size=5).map(lambda data: ("ay", data)),  # all that sdbus takes for an array of bytes
        st.tuples(inner.filter(lambda item: item[0] != "y"), st.integers(0, 5)).map(
            lambda pair: (f"a{pair[0][0]}", [pair[0][1]] * pair[1])
        ),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda items: (f"({''.join(kind for kind, _ in items)})", tuple(value for _, value in items))
        ),
        st.tuples(TEXT, inner).map(lambda pair: (f"a{{s{pair[1][0]}}}", {pair[0]: pair[1][1]})),
        st.dictionaries(TEXT, inner, max_size=4).map(lambda items: ("a{sv}", items)),
        inner.map(lambda item: ("v", item)),
    )


ANYTHING = st.recursive(leaves(), grown, max_leaves=6)
OPTIONS = st.dictionaries(TEXT, ANYTHING, max_size=4)


@st.composite
def fitting(draw: st.DrawFn) -> tuple[str, str, list[Typed]]:
    """A call whose types are right."""
    method = draw(st.sampled_from(sorted(SIGNATURES)))
    kinds = {"s": TEXT, "b": st.booleans(), "a{sv}": OPTIONS}
    signature = SIGNATURES[method].replace("sa{sv}", "s a{sv}").split()
    return INTERFACE, method, [(kind, draw(kinds[kind])) for kind in signature]


@st.composite
def unfitting(draw: st.DrawFn) -> tuple[str, str, list[Typed]]:
    """Any interface, any of its members, any arguments."""
    interface = draw(st.sampled_from(sorted(OTHERS)))
    known = OTHERS[interface] + (tuple(SIGNATURES) if interface == INTERFACE else ())
    return interface, draw(st.sampled_from(known)), draw(st.lists(ANYTHING, max_size=4))


class Caller:
    """Makes calls and counts what came back."""

    def __init__(self, bus: SdBus) -> None:
        self.bus = bus
        self.seen: Counter[str] = Counter()

    def call(self, path: str, interface: str, method: str, arguments: list[Typed]) -> None:
        """Make a call; AssertionError if the answer says what it must not."""
        message = self.bus.new_method_call_message(NAME, path, interface, method)
        for signature, value in arguments:
            message.append_data(signature, value)
        try:
            reply = str(self.bus.call(message).get_contents())
        except SdBusBaseError as error:
            name, text = name_and_text(error)
            self.seen[name] += 1
            assert name.startswith((ERROR_PREFIX, BUS_ERROR)), (name, text)
            assert name not in SILENT, (interface, method, arguments)
            # sd-bus says "Failed" of what it cannot explain, and of an exception that gangd did not catch.
            assert name != f"{BUS_ERROR}Failed", text
            assert len(text) < 20_000
            # The bus's own refusals name the command line of both ends; everything else is gangd's.
            from_the_bus = name == f"{BUS_ERROR}AccessDenied" and text.startswith("Rejected send message")
            assert from_the_bus or not [word for word in INSIDE if word in text], text
        else:
            self.seen["reply"] += 1
            assert "Traceback" not in reply


def main(address: str, examples: int) -> None:
    """Half of the calls fit the interface, half do not."""
    bus = open_bus(address)
    bus.method_call_timeout_usec = int(ANSWER_SECONDS * 1e6)
    caller = Caller(bus)
    paths = st.one_of(st.just(PATH), st.sampled_from(PATHS))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # no shrinking: it would wait for each answer that does not come
    @given(fitting(), paths, unfitting())
    def anything(right: tuple[str, str, list[Typed]], path: str, wrong: tuple[str, str, list[Typed]]) -> None:
        caller.call(PATH, *right)
        caller.call(path, *wrong)

    anything()
    print(json.dumps({"calls": caller.seen.total(), "seen": caller.seen}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
