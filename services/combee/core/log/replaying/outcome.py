"""Comparison of a replay with the original: entries are matched by content instead of id."""

from collections.abc import Iterable
from dataclasses import dataclass

from combee.core.text.similarity.lessons import Index
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.playbook import Playbook

_NEW = "#new"
"""A placeholder that is no entry's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Comparison of two playbooks' entries."""

    kept: int
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]
    """Pairs of contents that differ in figures or a negation alone."""


def compared(before: Playbook, after: Playbook) -> Entries:
    """Return which lessons of ``before`` are in ``after``, which are not, and which are new."""
    index = Index()
    contents = {entry.id: entry.content for entry in before.entries}
    for entry_id, content in contents.items():
        index.put(entry_id, content)
    kept: set[str] = set()
    others: list[str] = []
    for entry in after.entries:
        same = index.saying(entry.content)
        kept.update(same[:1])
        if not same:
            others.append(entry.content)
    gone = {entry_id for entry_id in contents if entry_id not in kept}
    changed: dict[str, str] = {}
    added: list[str] = []
    for content in others:
        index.put(_NEW, content)
        rivals = [rival for rival in index.at_odds_with(_NEW) if rival in gone and rival not in changed]
        index.drop(_NEW)
        if rivals:
            changed[rivals[0]] = content
        else:
            added.append(content)
    return Entries(
        kept=len(kept),
        added=tuple(added),
        gone=tuple(content for known, content in contents.items() if known in gone and known not in changed),
        changed=tuple((contents[known], content) for known, content in changed.items()),
    )


def spent(versions: Iterable[Playbook]) -> Usage:
    """Return the usage of the versions' scans."""
    return sum((version.usage for version in versions), NOTHING_SPENT)
