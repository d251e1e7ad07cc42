"""Settings that differ by playbook: its trust posture, and the judges of its new versions; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeVar

from combee.core.gate.judges import JUDGES, PERSON
from combee_schemas.base import DAY_MS, playbook_of
from combee_schemas.canary import CanaryTerms
from combee_schemas.digests import digest
from combee_schemas.gate import Judge
from combee_schemas.plan import Trust

T = TypeVar("T")
Judges = tuple[Judge, ...]
EVERYBODY = "*"
"""The pattern of all playbooks that no other pattern matches."""
OFF = "off"
PUBLIC: Judges = (PERSON,)
"""Judges of a public playbook for which no others are set."""


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


# ---- judges


def judges_in(text: str) -> Judges:
    """Return the judges that a setting names, such as ``evaluate,approve``; ``off``: none.

    Raises
    ------
    ValueError
        If the setting is invalid.
    """
    names = [name.strip() for name in text.split(",")]
    if names == [OFF]:
        return ()
    if unknown := [name for name in names if name not in JUDGES]:
        raise ValueError(f"{unknown[0] or text!r} is not a judge: {OFF}, or some of {', '.join(JUDGES)}")
    return tuple(judge for judge in JUDGES if judge in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPolicy:
    """The terms of new canaries; running ones keep theirs."""

    share: float = 0.1
    margin: float = 0.05
    alpha: float = 0.05
    within_ms: int = 14 * DAY_MS
    salt: str = ""

    def terms(self, playbook: str, candidate: int, control: int, now_ms: int) -> CanaryTerms:
        """Return the terms of one canary."""
        return CanaryTerms(
            candidate=candidate,
            control=control,
            share=self.share,
            salt=digest("canary", self.salt, playbook, candidate).hex(),
            margin=self.margin,
            alpha=self.alpha,
            opened_at_ms=now_ms,
            deadline_ms=now_ms + self.within_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The judges of every playbook."""

    judges: Judges | None = None
    """Judges of all playbooks without a pattern. None: not configured, gates stay; empty: no gate."""
    by_pattern: Mapping[str, Judges] = field(default_factory=dict)
    """Judges by name pattern, such as ``support/*``; the longest matching pattern wins."""
    canary: CanaryPolicy = field(default_factory=CanaryPolicy)
    postures: TrustPolicy = field(default_factory=TrustPolicy)
    """A public playbook always has a judge."""

    def judges_of(self, line: str) -> Judges | None:
        """Return the judges of a playbook, None if not configured; branches have none (read on request only)."""
        if playbook_of(line) != line:
            return ()
        judges = longest_match(self.by_pattern, line)
        judges = self.judges if judges is None else judges
        return judges or (PUBLIC if self.postures.of(line) == "public" else judges)

    @property
    def all_judges(self) -> frozenset[Judge]:
        """Every judge that any playbook needs."""
        named = (self.judges or (), *self.by_pattern.values(), PUBLIC if self.postures.public else ())
        return frozenset(judge for judges in named for judge in judges)


NO_GATE = GatePolicy()
