# SPDX-License-Identifier: Apache-2.0
"""Which policy schedules a guest, and who said so: its own mark, a selector of the operator's, the default.

A mark or a selector names a policy or a profile; a profile is found before a policy of the same name. The
word `off` is neither: a guest for which it is chosen is left alone. Who chooses, in this order:

    1. the mark, if it names one
    2. the first selector that matches
    3. for a marked guest, the operator's default

A guest that no one marked and no selector matches is left alone. So is one whose mark cannot be read: what
its owner asked for is not known. Pure. docs/decisions/0024-profiles.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gangd.errors import InvalidArgument, InvalidConfig
from gangd.model.domain import KVM, Domain

OFF = "off"
MARK, DEFAULT = "mark", "default"


@dataclass(frozen=True)
class Profile:
    """A policy and what goes with it, under a name. weight: 1 to 10000, None = the domain's own CPU shares.
    source: where it stands, "built in" for gangd's own."""

    name: str
    policy: str
    weight: int | None = None
    source: str = "built in"


BUILT_IN = (
    Profile("default", "adaptive"),
    Profile("dense", "adaptive"),
    Profile("latency", "relaxed", 400),
)


@dataclass(frozen=True)
class Selector:
    """Chooses a policy or profile for the guests it matches. None of name, tag, marked, cgroup: any will do.

    name: a pattern as of the shell for the whole name, case as written: `*`, `?`, `[abc]`, `[!abc]` (Python's
    fnmatchcase; a dot or a slash is a letter like any other). tag: of the guest's mark, exactly. marked:
    whether it has a mark. cgroup: a pattern for the whole path of a guest of KVM's; libvirt's match none.
    source: where it stands.
    """

    chooses: str
    source: str
    name: str | None = None
    tag: str | None = None
    marked: bool | None = None
    cgroup: str | None = None

    def matches(self, domain: Domain) -> bool:
        """True if the selector matches this guest."""
        tag = domain.mark.tag if domain.mark else None
        return (
            self.marked in (None, domain.mark is not None)
            and self.tag in (None, tag)
            and (self.name is None or fnmatchcase(domain.name, self.name))
            and (self.cgroup is None or (domain.source == KVM and fnmatchcase(domain.cgroup, self.cgroup)))
        )

    @property
    def text(self) -> str:
        """Return the selector's conditions as the configuration file writes them."""
        texts = (("name", self.name), ("cgroup", self.cgroup), ("tag", self.tag))
        found = [f"{key} = '{value}'" for key, value in texts if value]
        found += [] if self.marked is None else [f"marked = {str(self.marked).lower()}"]
        return ", ".join(found)


@dataclass(frozen=True)
class Choice:
    """The policy and weight chosen for a guest.

    policy: `off` leaves it alone. weight: None = its own CPU shares. profile: None where a policy was
    named. source: "mark", "default", or the selector's place in the configuration.
    """

    policy: str
    weight: int | None
    profile: str | None
    source: str


@dataclass(frozen=True)
class Rules:
    """Everything an operator said about who is scheduled how. default: of a mark that names nothing."""

    profiles: Mapping[str, Profile]
    selectors: tuple[Selector, ...] = ()
    default: str = "adaptive"

    def choice(self, domain: Domain) -> Choice | None:
        """Return a guest's choice; None: its mark is malformed, or it has none and no selector matches."""
        if domain.mark_error is not None:
            return None
        mark = domain.mark
        if mark and mark.policy is not None:
            return self._named(mark.policy, mark.weight, MARK)
        own_weight = mark.weight if mark else None
        for selector in self.selectors:
            if selector.matches(domain):
                return self._named(selector.chooses, own_weight, selector.source)
        return self._named(self.default, own_weight, DEFAULT) if mark else None

    def wants(self, domain: Domain) -> bool:
        """True if anything is to be done for a guest."""
        choice = self.choice(domain)
        return choice is not None and choice.policy != OFF

    def policy_of(self, name: str) -> str:
        """The policy behind the name of a profile or policy."""
        return self.profiles[name].policy if name in self.profiles else name

    def _named(self, name: str, weight: int | None, source: str) -> Choice:
        profile = self.profiles.get(name)
        if profile is None:
            return Choice(name, weight, None, source)
        return Choice(profile.policy, weight or profile.weight, name, source)


def rules(
    own: Iterable[Profile] = (), selectors: Iterable[Selector] = (), default: str = Rules.default
) -> Rules:
    """The built-in profiles and the operator's own, of which one may replace a built-in."""
    return Rules({profile.name: profile for profile in (*BUILT_IN, *own)}, tuple(selectors), default)


def check_policy(name: str, installed: Collection[str]) -> str:
    """`name`, if such a policy is installed. Raises InvalidArgument naming those that are."""
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise InvalidArgument(f"no policy is called '{name}' (installed: {known})")
    return name


def check_choice(name: str, said: Rules, installed: Collection[str]) -> str:
    """`name`, if a mark may say it: an installed policy, a profile or `off`. Raises InvalidArgument."""
    policy = said.policy_of(name)
    if policy != OFF:
        check_policy(policy, installed)
    return name


def check_rules(said: Rules, installed: Collection[str]) -> Rules:
    """`said`, if every policy it names is installed. Raises InvalidConfig with the place."""
    named = [(profile.source, profile.policy) for profile in said.profiles.values()]
    named += [(selector.source, selector.chooses) for selector in said.selectors]
    for place, name in (*named, ("scheduler.policy", said.default)):
        try:
            check_choice(name, said, installed)
        except InvalidArgument as error:
            raise InvalidConfig(f"{place}: {error.cause}")
    return said
