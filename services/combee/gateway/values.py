"""The gateway's answers, as the OpenAPI document describes them."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from combee.core.formats.files import Format
from combee.core.playbook.versions import version_summary
from combee.gateway.problems import Problem
from combee.log.reports.status import listed_report
from combee_schemas.base import LineName, Value
from combee_schemas.canary import CanaryTerms
from combee_schemas.gate import Judge
from combee_schemas.plan import Branch, Outcomes
from combee_schemas.playbook import LABEL_PATTERN, PRODUCTION, Audit, Label, Origin, Playbook

LARGEST_WHOLE = 2.0**64
LabelName = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]


def whole(value: Any) -> Any:
    """Return JSON with every whole float as an int (``2.0`` as ``2``), because strict models refuse the float."""
    match value:
        case float() if value.is_integer() and abs(value) < LARGEST_WHOLE:
            return int(value)
        case list():
            return [whole(item) for item in value]
        case dict():
            return {name: whole(item) for name, item in value.items()}
    return value


def has_more_values(value: Any, most: int) -> bool:
    """Return whether JSON has more than ``most`` values; it stops counting there."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        part = waiting.pop()
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        count += len(parts)
        waiting += (each for each in parts if isinstance(each, dict | list))
    return count > most


class Item(Value):
    """Result of one object of a request."""

    index: int
    id: str = ""
    """The object's id, or one derived from its content."""
    status: Literal["accepted", "repeated", "refused"]
    """accepted: Kafka has acknowledged it; repeated: Kafka had acknowledged it before."""
    problem: Problem | None = None


class Receipt(Value):
    """Results of the objects of a request; Kafka has acknowledged all that are not refused."""

    accepted: int = 0
    repeated: int = 0
    refused: int = 0
    items: tuple[Item, ...] = ()


class Listed(Value):
    """One playbook in a list."""

    name: LineName
    version: int
    entries: int
    """Number of entries shown to agents."""
    proposed: int = 0
    batch_sequence: int
    origin: Origin
    branch: Branch | None = None
    """A branch's origin and settings."""
    labels: dict[str, int]
    """Versions by label."""
    gate: tuple[Judge, ...] = ()
    """Judges that must accept a version; with any, reads without a label return ``production``."""
    created_at_ms: int


class Page(Value):
    """A page of playbooks, ordered by name."""

    playbooks: tuple[Listed, ...]
    next: LineName | None = None
    """Value of ``after`` for the next page, None on the last page."""


class Tokens(Value):
    """Tokens that the model read and wrote; ``cached`` were read from the server's prompt cache."""

    read: int
    cached: int = 0
    written: int


class VersionRow(Value):
    """One version without its entries: origin, changes, cost."""

    version: int
    origin: Origin
    batch_id: str = ""
    batch_sequence: int | None = None
    base_version: int = 0
    staleness: int = 0
    reflections: int = 0
    outcomes: Outcomes = Outcomes()
    """Reported outcomes of the runs behind the batch: mean scores, successes."""
    sources: dict[str, int] = Field(default_factory=dict)
    """Number of the batch's reflections by source, for the 20 largest sources."""
    entries: int = 0
    """Number of entries shown to agents."""
    proposed: int = 0
    issued_by: str = ""
    """Issuer of the command: `key:NAME` or `user:NAME@HOST`; empty for a batch."""
    changes: dict[str, int]
    """Number of changes by kind."""
    model_calls: int = 0
    tokens: Tokens
    retention: float | None = None
    """Share of the batch's reflections that are new or known."""
    audit: Audit | None = None
    """Audit of the batch; None without one."""
    degraded: bool = False
    closed_at_ms: int = 0
    created_at_ms: int = 0


class Versions(Value):
    """A page of a playbook's versions, newest first."""

    name: LineName
    versions: tuple[VersionRow, ...]
    next: int | None = None
    """Value of ``before`` for the next page, None after the oldest retained version."""


class VersionEvent(Value):
    """The data of a ``version`` event: the playbook, or its text in the requested format."""

    name: LineName
    version: int
    format: Format = "json"
    created_at_ms: int
    playbook: Playbook | None = None
    text: str | None = None


class DeletedEvent(Value):
    """The data of a ``deleted`` event."""

    name: LineName
    version: int


class LabelEvent(Value):
    """The data of a ``label`` event: the version that a label points at now, 0 for none."""

    name: LineName
    label: str
    version: int
    gate: tuple[Judge, ...] = ()
    """Judges of the gate, on ``production`` only."""
    canary: CanaryTerms | None = None
    """Callers that are shown the candidate, on ``candidate`` only."""


class Sent(Value):
    """A command that Kafka has acknowledged; ``done`` once it has its effect."""

    command_id: str
    done: bool = False
    version: int | None = None
    """The newest version, once done; for a label, the version that it points at."""
    changed: bool = True
    """False if the command would change nothing and was not sent."""
    labels: dict[str, int] = Field(default_factory=dict)
    """After a revocation: versions by label of labels that still serve revoked content."""


def listed(playbook: Playbook, labels: dict[str, Label]) -> Listed:
    """Return one playbook of the list."""
    gate = labels[PRODUCTION].gate if PRODUCTION in labels else ()
    report = listed_report(playbook, {}, {label.label: label.version for label in labels.values()})
    return Listed.model_validate({**dict(report), "branch": playbook.branch, "gate": gate})


def as_row(playbook: Playbook) -> VersionRow:
    """Return one version without its entries."""
    usage = playbook.usage
    return VersionRow(
        **dict(version_summary(playbook)),
        outcomes=playbook.batch.plan.outcomes if playbook.batch else Outcomes(),
        tokens=Tokens(read=usage.tokens_in, cached=usage.cached_tokens, written=usage.tokens_out),
    )
