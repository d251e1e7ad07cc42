"""The inputs of a decision: the partition, the settings, the time, and what was read for it; pure.

If a decision needs something that was not read, the publisher reads it and asks for the decision again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from combee.adapters.ports import PoisonError, Record
from combee.core.batching.planned import Manifest
from combee.core.commands import no_version
from combee.core.playbook.branching import Adoption
from combee.core.playbook.recomputing import Recomputed
from combee.publish.decide.decision import Rules
from combee.publish.partition import PublishState
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Update

T = TypeVar("T")


# ---- what can be read


class Request(Generic[T]):
    """One thing to be read; ``T`` is the type of the answer."""


@dataclass(frozen=True, slots=True)
class OldVersion(Request[Playbook | None]):
    """A version by its number; None: it is not retained."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class AllRevoked(Request[tuple[str, ...]]):
    """All reflections that a version's rules take back; snapshots name a part."""

    name: str
    number: int
    version: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class EvidenceLeft(Request[Playbook]):
    """A version whose entries have all of their evidence that is not revoked."""

    name: str
    version: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class Remainder(Request[Recomputed]):
    """A version recomputed without the reflections revoked in ``barred``, from all updates that made it."""

    name: str
    number: int
    version: Playbook = field(compare=False)
    barred: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class AdoptionOf(Request[Adoption]):
    """The conditions for adopting a version of a branch, ``target``."""

    name: str
    number: int
    current: Playbook = field(compare=False)
    line: Playbook = field(compare=False)
    target: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class UpdatesBetween(Request[list[Update]]):
    """The updates of a line's batches after one, up to another."""

    name: str
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class EntriesBetween(Request[Sequence[Playbook]]):
    """A line's versions between two places in ``history``, each with the entries of these ids alone."""

    name: str
    start: int
    end: int
    entry_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManifestAt(Request[Manifest | Literal["to come"] | None]):
    """The manifest at an offset; None: there is none. ``may_come``: a manifest not visible yet is waited for."""

    partition: int
    offset: int
    may_come: bool


@dataclass(frozen=True, slots=True)
class Bodies(Request[Mapping[int, Record]]):
    """The records of reflections, by offset; those that are not retained are missing."""

    partition: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FirstReflection(Request[int]):
    """The offset of a partition's oldest retained reflection."""

    partition: int


class UnreadError(Exception):
    """A decision rests on something that has not been read for it."""

    def __init__(self, request: Request[Any]) -> None:
        super().__init__(f"not read: {request}")
        self.request = request


# ---- what a decision starts from


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The inputs of the decision about one record: the same basis gives the same decision."""

    state: PublishState
    rules: Rules
    now_ms: int
    may_wait: bool = True
    """Whether an update may wait for its manifest."""
    answers: dict[Request[Any], object] = field(default_factory=dict)
    """Answers read up to now."""

    def read(self, request: Request[T]) -> T:
        """Return what was read.

        Raises
        ------
        UnreadError
            If it is still to be read.
        """
        if request not in self.answers:
            raise UnreadError(request)
        return cast("T", self.answers[request])

    def current(self, name: str) -> Playbook:
        """Return the newest version of a line, with all reflections revoked on it."""
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
        """Return a version recomputed without the reflections revoked in ``barred``; None: nothing is revoked."""
        if not barred.revoked:
            return None
        return self.read(Remainder(version.name, version.version, version, barred))
