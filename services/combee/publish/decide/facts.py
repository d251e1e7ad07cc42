"""What a decision rests on beyond its partition: the publisher reads it and asks for the decision again; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from combee.core.batching.planned import Manifest
from combee.core.playbook.branching import Adoption
from combee.core.playbook.recomputing import Recomputed
from combee.ports import Record
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Update

T = TypeVar("T")


class Request(Generic[T]):
    """One thing to be read; ``T`` is what the answer is."""


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
    """A version whose entries have all of their evidence, but for what is revoked."""

    name: str
    version: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class Remainder(Request[Recomputed]):
    """What is left of a version without what ``barred`` says is revoked, from all that made it."""

    name: str
    number: int
    version: Playbook = field(compare=False)
    barred: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class AdoptionOf(Request[Adoption]):
    """What decides whether a version of a branch, ``target``, may be adopted."""

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
class HasCome(Request[bool]):
    """Whether the manifest at an offset is there by now, if it ever will be."""

    playbook: str
    offset: int


@dataclass(frozen=True, slots=True)
class ManifestAt(Request[Manifest | None]):
    """The manifest at an offset; None: there is none."""

    playbook: str
    offset: int


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


class Facts:
    """What was read for one decision, by request."""

    def __init__(self) -> None:
        self._answers: dict[Request[Any], object] = {}

    def add(self, request: Request[T], answer: T) -> None:
        """Remember the answer to a request."""
        self._answers[request] = answer

    def of(self, request: Request[T]) -> T:
        """Return the answer to a request.

        Raises
        ------
        UnreadError
            If there is none yet.
        """
        if request not in self._answers:
            raise UnreadError(request)
        return cast("T", self._answers[request])
