"""Checkpoint: what the ledger need not read again, as a record with offsets and sums that can be verified.

Closed records are only counted. Open ones (a waiting or dead reflection, a batch without a version) are named by
offset and read again, so that judgements trust the checkpoint only for its sums.
"""

import json
from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import blake2b, sha256

from pydantic import Field

from combee_schemas.base import Usage, Value
from combee_schemas.digests import digest
from combee_schemas.plan import Branch
from combee_schemas.records import Record

FORMAT = 1
MET_KEPT = 500_000
"""Maximum number of closed ids kept, newest first (4 MB). Only a full reading finds a repeat of an older one."""
MARK_BYTES = 8

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


class CheckpointError(ValueError):
    """The checkpoint cannot be used: it is damaged, of another format, or of another log."""


class Evidence(Value):
    """The last record read of a partition, which identifies its log."""

    offset: int
    digest: str

    @classmethod
    def of(cls, record: Record) -> "Evidence":
        """Return values that distinguish a record from any other at its place."""
        content = blake2b(digest_size=16)
        for part in (record.key, record.value):
            content.update(b"-" if part is None else len(part).to_bytes(8, "big") + part)
        content.update(record.timestamp_ms.to_bytes(8, "big", signed=True))
        return cls(offset=record.offset, digest=content.hexdigest())


class KnownFork(Value):
    """A period in which a branch learned."""

    branch: Branch
    sequence: int
    after: int
    through: int


class KnownSnapshot(Value):
    """The newest record of a playbook in ``playbooks``."""

    where: str
    partition: int
    version: int
    history_offset: int
    content: str


class KnownDecision(Value):
    """A decision at a gate."""

    through: int
    """The newest candidate decided about by then."""
    version: int
    """The version that agents read from then on."""
    decided_at_ms: int


class Line(Value):
    """Progress of a playbook or a branch."""

    home: int | None = None
    """The partition of its manifests; None: it has none."""
    batches: tuple[int, int] = (0, 0)
    """The first and the last sequence of its manifests."""
    version: tuple[int, int] | None = None
    """The last version in history, and its last batch."""
    contained: tuple[tuple[int, int], ...] = ()
    """The last batch in each of the newest versions."""
    published: int = 0
    ended: int | None = None
    snapshot: KnownSnapshot | None = None
    forks: tuple[KnownFork, ...] = ()
    decided: KnownDecision | None = None
    """The last decision at its gate; None: there was none."""


class Totals(Value):
    """Counts of closed records."""

    applied: int = 0
    dropped: int = 0
    duplicates: int = 0
    traces_reflected: int = 0
    traces_dropped: int = 0
    traces_duplicates: int = 0
    planned_calls: int = 0
    usage: Usage = Usage()


class Checkpoint(Value):
    """The state of a ledger that found no broken promise."""

    format: int = FORMAT
    taken_at_ms: int
    first_retained: dict[str, dict[int, int]]
    """First retained offsets at the initial full reading, whose horizon still holds."""
    next: dict[str, dict[int, int]]
    """The first unread offset, by topic and partition."""
    last: dict[str, dict[int, Evidence]]
    open: dict[str, dict[int, tuple[int, ...]]]
    """Offsets to be read again."""
    lines: dict[str, Line]
    totals: Totals
    met: str = ""
    """Marks of closed ids, oldest first, in base 64."""


NOTHING = Checkpoint(taken_at_ms=0, first_retained={}, next={}, last={}, open={}, lines={}, totals=Totals())
"""The checkpoint before the first record."""


def mark(kind: str, playbook: str, identity: str) -> int:
    """Return the mark (a short hash) of a playbook's id."""
    return int.from_bytes(digest(kind, playbook, identity)[:MARK_BYTES], "big")


def packed(marks: "array[int]") -> str:
    """Return marks as text."""
    return b64encode(marks.tobytes()).decode()


def unpacked(text: str) -> "array[int]":
    """Return the marks in a text, in order."""
    marks = array("Q")
    marks.frombytes(b64decode(text))
    return marks


class _Sealed(Value):
    sha256: str
    checkpoint: str = Field(repr=False)


def sealed(checkpoint: Checkpoint) -> str:
    """Return a checkpoint as text, with a hash of its content."""
    body = checkpoint.model_dump_json()
    return json.dumps({"sha256": sha256(body.encode()).hexdigest(), "checkpoint": body})


def unsealed(text: str | bytes) -> Checkpoint:
    """Return the checkpoint in a text.

    Raises
    ------
    CheckpointError
        If it is damaged, or of another format.
    """
    try:
        outer = _Sealed.model_validate_json(text)
        is_whole = sha256(outer.checkpoint.encode()).hexdigest() == outer.sha256
        checkpoint = Checkpoint.model_validate_json(outer.checkpoint)
        unpacked(checkpoint.met)
    except ValueError as error:
        raise CheckpointError("it is damaged, or none") from error
    if not is_whole:
        raise CheckpointError("it is damaged: its content has another hash")
    if checkpoint.format != FORMAT:
        raise CheckpointError(f"it has format {checkpoint.format}, and this release reads {FORMAT}")
    return checkpoint
