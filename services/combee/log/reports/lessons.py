"""The newest lessons of all playbooks, by the version that added them; pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from combee.core.log.live.values import LivePlaybook, LiveVersion
from combee.log.reports.status import newest_versions
from combee_schemas.playbook import Entry, Playbook

VERSIONS = 8
LESSONS = 3
"""Maximum number of lessons shown per version; the version's page shows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Lessons that one version added or changed and that are still in the newest one."""

    playbook: str
    version: LiveVersion
    lessons: tuple[Entry, ...]
    """New lessons first, then by most evidence."""
    total: int

    def is_new(self, entry: Entry) -> bool:
        """Return whether this version added an entry, rather than changed or confirmed it."""
        return entry.created_version == self.version.version


def newest_lessons(
    shown: Iterable[LivePlaybook], latest: Callable[[str], Playbook], most: int = VERSIONS
) -> tuple[Learned, ...]:
    """Return the newest versions with lessons, newest first."""
    lessons_learned: list[Learned] = []
    for name, version in newest_versions(shown, most):
        if len(lessons_learned) == most:
            break
        entries = [entry for entry in latest(name).entries if entry.updated_version == version.version]
        if entries:
            entries.sort(key=lambda entry: (entry.created_version != version.version, -entry.evidence_count))
            kept = tuple(entries[:LESSONS])
            lessons_learned.append(Learned(playbook=name, version=version, lessons=kept, total=len(entries)))
    return tuple(lessons_learned)
