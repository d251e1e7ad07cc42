"""What a decision starts from: the partition, what was read, the settings and the time; pure."""

from dataclasses import dataclass, field
from typing import TypeVar

from combee.core.commands import no_version
from combee.core.playbook.recomputing import Recomputed
from combee.ports import PoisonError
from combee.publish.decide.decision import Rules
from combee.publish.decide.facts import AllRevoked, Facts, OldVersion, Remainder, Request
from combee.publish.partition import PartitionState
from combee_schemas.playbook import Playbook

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the decision about one record starts from: the same basis gives the same decision."""

    state: PartitionState
    rules: Rules
    now_ms: int
    facts: Facts = field(default_factory=Facts)

    def read(self, request: Request[T]) -> T:
        """Return what was read.

        Raises
        ------
        UnreadError
            If it is still to be read.
        """
        return self.facts.of(request)

    def current(self, name: str) -> Playbook:
        """Return the newest version of a line, with all that is revoked on it."""
        newest = self.state.current(name)
        if name not in self.state.revoked:
            return self.with_revoked(newest)
        return newest.model_copy(update={"revoked": self.state.revoked[name]})

    def with_revoked(self, version: Playbook) -> Playbook:
        """Return a version that names all reflections that its rules take back."""
        revoked = self.read(AllRevoked(version.name, version.version, version))
        return version.model_copy(update={"revoked": revoked})

    def version(self, name: str, number: int) -> Playbook | None:
        """Return a version of a line; None: it is not retained."""
        return self.read(OldVersion(name, number)) if number > 0 else None

    def retained_version(self, newest: Playbook, number: int) -> Playbook:
        """Return a version of a line, given its newest one.

        Raises
        ------
        PoisonError
            If it is not retained.
        """
        version = self.version(newest.name, number)
        if version is None:
            raise PoisonError(no_version(newest, number))
        return version

    def remainder(self, version: Playbook, barred: Playbook) -> Recomputed | None:
        """Return what is left of a version without what ``barred`` says is revoked; None: nothing is revoked."""
        if not barred.revoked:
            return None
        return self.read(Remainder(version.name, version.version, version, barred))
