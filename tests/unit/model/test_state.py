# SPDX-License-Identifier: Apache-2.0
"""How events change what is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangd.model.domain import KVM, Domain, Mark
from gangd.model.event import Connected, CpusSeen, Disconnected, DomainGone, DomainSeen, Event, Resynced
from gangd.model.state import State, reduce
from gangd.model.topology import Cpu, Topology

WEB = Domain(uuid="a", name="web", id=1, mark=Mark())
DB = Domain(uuid="b", name="db")
TOPOLOGY = Topology((Cpu(0, 0, 0, 0, 0),))


def after(*events: Event) -> State:
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


def test_nothing_is_known_at_first() -> None:
    assert State().connected is None
    assert not State().domains


def test_a_lost_connection_keeps_what_was_known() -> None:
    state = after(Connected("qemu:///system"), Resynced((WEB, DB), TOPOLOGY), Disconnected("it stopped"))
    assert (state.connected, state.reason, state.uri) == (False, "it stopped", "qemu:///system")
    assert set(state.domains) == {"a", "b"}
    assert state.topology == TOPOLOGY
    assert reduce(state, Connected("qemu:///system")).reason == ""


def test_cpus_are_read_without_libvirt() -> None:
    state = after(Resynced((WEB,), Topology()), Disconnected("it stopped"), CpusSeen(TOPOLOGY))
    assert (state.connected, state.topology, set(state.domains)) == (False, TOPOLOGY, {"a"})


def test_a_full_read_forgets_who_is_not_in_it() -> None:
    assert set(after(DomainSeen(WEB), Resynced((DB,), TOPOLOGY)).domains) == {"b"}


def test_an_unknown_domain_may_go() -> None:
    assert after(DomainGone("never seen")) == State()


def test_states_are_never_changed_in_place() -> None:
    before = after(DomainSeen(WEB))
    reduce(before, DomainGone("a"))
    assert set(before.domains) == {"a"}


def test_only_running_domains_with_a_usable_mark_count_as_marked() -> None:
    stopped = Domain(uuid="c", name="aaa", mark=Mark())
    second = Domain(uuid="d", name="db", id=2, mark=Mark())
    state = after(Resynced((WEB, DB, stopped, second), TOPOLOGY))
    assert [d.name for d in state.marked()] == ["db", "web"]


domains = st.builds(Domain, uuid=st.sampled_from("abc"), name=st.text(max_size=3))
events = st.one_of(
    st.builds(Connected, st.text()),
    st.builds(Disconnected, st.text()),
    st.builds(DomainSeen, domains),
    st.builds(DomainGone, st.sampled_from("abc")),
    st.builds(Resynced, st.lists(domains, unique_by=lambda d: d.uuid).map(tuple), st.just(TOPOLOGY)),
)


@given(st.lists(events))
def test_a_full_read_makes_history_irrelevant(history: list[Event]) -> None:
    known = after(*history, Resynced((WEB,), TOPOLOGY)).domains
    assert dict(known) == {"a": WEB}


def test_a_number_or_name_of_both_sources_is_libvirts() -> None:
    """The PID of one guest may be libvirt's number of another."""
    theirs = Domain(uuid="b", name="web", id=1, source=KVM)
    state = after(Connected(""), DomainSeen(theirs), DomainSeen(WEB))
    assert state.find("1") == state.find("web") == WEB
    assert reduce(state, DomainGone("a")).find("1") == theirs
