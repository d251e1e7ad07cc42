"""Trust: what a posture lets sources do to a playbook, and how much support a change needs; pure.

All rules follow from a manifest's posture and its number of colluders, so that a batch which is applied again gives
the same version. The rule of support: destroying costs as much as building.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from combee.core.names.sources import UNPROVEN, supporters
from combee.core.playbook.derived import once_per_version
from combee_schemas.base import SourceNames, playbook_of
from combee_schemas.plan import PlanSettings, Trust
from combee_schemas.playbook import Entry, Playbook

T = TypeVar("T")

PERSON = 3
"""Sources and reflections that a person's word counts as; what sources say never counts as more."""
NOT_ALONE = 2
"""Sources that a change needs of what others stand behind: one that was taken over destroys nothing alone."""
TO_BE_ALONE = 3
"""Batches that a source has taught alone, before it counts as the only one of a playbook with entries by hand."""
EVERYBODY = "*"
"""The pattern of all playbooks that no other pattern matches."""


class Support(NamedTuple):
    """Numbers of sources and of reflections that say something."""

    sources: int
    reflections: int
    names: frozenset[str] = frozenset()
    """The sources, if they are known."""

    def suffices(self, needed: "Support") -> bool:
        """Return whether it is as much as is needed."""
        return self.sources >= needed.sources and self.reflections >= needed.reflections

    def told(self, needed: "Support") -> str:
        """Return what there is and what is needed in words."""
        said = f"{self.reflections} of {needed.reflections} reflections"
        return f"{said} and {self.sources} of {needed.sources} sources" if needed.sources > 1 else said


ENOUGH = Support(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a posture asks for."""

    names: SourceNames = "declared"
    """Which source names count."""
    weighs: bool = False
    """Whether a change needs as much support as stands behind what it changes; else only a person's word weighs."""
    quorum: int = 0
    """Proven sources that a lesson needs before agents see it, and any change; 0: additions need none."""
    several: bool = False
    """Whether the playbook has several sources; else reflections alone are asked for."""
    may_be_several: bool = False
    """Whether its only source has taught too few batches to be known as the only one."""

    def counted(self, names: Collection[str], entry: Entry | None = None) -> frozenset[str]:
        """Return the sources that count for or against an entry; next to proven ones unproven ones do not."""
        proven = frozenset(names) - {UNPROVEN}
        if self.quorum or (entry is not None and supporters(entry) != (UNPROVEN,)):
            return proven
        return proven or frozenset(names)

    def to_change(self, entry: Entry, by: Collection[str] | None = None) -> Support:
        """Return the support that changing, merging or removing an entry needs: as much as stands behind it.

        ``by``: the sources of new evidence; one alone changes only what nobody else stands behind.
        """
        if entry.by_hand:
            most = max(PERSON, self.quorum)
            return Support(most if self.several or self.may_be_several else 1, most)
        if not self.weighs:
            return ENOUGH
        if self.quorum:
            return Support(self.quorum, self.quorum)
        own = supporters(entry)
        sources = min(PERSON, len(own)) if self.several else 1
        if self.several and by is not None and own != (UNPROVEN,) and not set(own).issubset(by):
            sources = max(NOT_ALONE, sources)
        return Support(sources, max(1, min(PERSON, entry.evidence_count)))

    @property
    def to_change_unknown(self) -> Support:
        """The support that an operation on an entry needs which is not there yet: its id can be foreseen."""
        if not self.weighs:
            return ENOUGH
        most = self.quorum or PERSON
        return Support(most if self.several else 1, most)

    @property
    def to_add(self) -> Support:
        """The support that a new lesson needs before agents see it."""
        return Support(self.quorum, self.quorum)

    def may_be_removed_for_harm(self, entry: Entry) -> bool:
        """Return whether the runs that found an entry harmful are as many as its removal needs."""
        by = self.counted(entry.harmed or (UNPROVEN,), entry)
        return Support(len(by), entry.harmful).suffices(self.to_change(entry, by))


OPEN = Rules()


def rules_of(settings: PlanSettings, *, several: bool = False, may_be_several: bool = False) -> Rules:
    """Return the rules of a manifest for a playbook with these sources."""
    match settings.trust:
        case "lab":
            return Rules(several=several, may_be_several=may_be_several)
        case "team":
            return Rules(names="proven", weighs=True, several=several, may_be_several=may_be_several)
        case "public":
            return Rules(names="proven", weighs=True, several=True, quorum=settings.colluders + 1)


def names_counted(settings: PlanSettings) -> SourceNames:
    """Return which source names count in a batch."""
    return rules_of(settings).names


@once_per_version
def parts(playbook: Playbook) -> Mapping[str, Fraction]:
    """Return each source's part of a playbook's reflections."""
    counts = {source.name: source.reflections for source in playbook.taught_by if source.reflections}
    total = sum(counts.values())
    return {name: Fraction(count, total) for name, count in counts.items()}


def proven_sources(playbook: Playbook) -> int:
    """Return how many proven sources have taught a playbook."""
    return sum(source.name != UNPROVEN for source in playbook.taught_by)


def trust_text(playbook: Playbook) -> str:
    """Return a playbook's posture in words, and whether anybody proves who they are; empty: nothing was learned."""
    if playbook.trust is None:
        return ""
    if playbook.trust == "lab":
        return "lab: everything counts at once"
    count = proven_sources(playbook)
    proving = f"{count} source{'s prove' if count > 1 else ' proves'} who they are"
    return f"{playbook.trust}: {proving if count else 'nobody proves who they are'}"


# ---- which posture


def longest_match(by_pattern: Mapping[str, T], name: str) -> T | None:
    """Return what the longest pattern that matches a name stands for, such as ``support/*``; None: none matches."""
    matching = (pattern for pattern in by_pattern if fnmatchcase(name, pattern))
    longest = max(matching, key=len, default=None)
    return None if longest is None else by_pattern[longest]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """The posture of every playbook."""

    by_pattern: Mapping[str, Trust] = field(default_factory=lambda: MappingProxyType({}))
    """Postures by name pattern, such as ``support/*``; the longest matching pattern wins."""

    def of(self, line: str) -> Trust:
        """Return the posture of a line; a branch has its playbook's."""
        return longest_match(self.by_pattern, playbook_of(line)) or "team"

    @property
    def public(self) -> tuple[str, ...]:
        """The patterns of public playbooks."""
        return tuple(pattern for pattern, trust in self.by_pattern.items() if trust == "public")
