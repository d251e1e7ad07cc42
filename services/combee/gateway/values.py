"""What the gateway answers, as the OpenAPI document describes it."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from combee.core.formats.files import Format
from combee.core.playbook.version_row import version_row
from combee.gateway.problems import Problem
from combee.log.reports.status import list_row
from combee_schemas.base import LineName, Value
from combee_schemas.canary import CanaryTerms
from combee_schemas.gate import Judge
from combee_schemas.plan import Branch, Outcomes
from combee_schemas.playbook import LABEL_PATTERN, PRODUCTION, Label, LevelAudit, Origin, Playbook

LARGEST_WHOLE = 2.0**64
LabelName = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]


def whole(value: Any) -> Any:
    """Return JSON with ``2.0`` as ``2``, wherever it is: JSON knows no difference, and strict models do."""
    match value:
        case float() if value.is_integer() and abs(value) < LARGEST_WHOLE:
            return int(value)
        case list():
            return [whole(item) for item in value]
        case dict():
            return {name: whole(item) for name, item in value.items()}
    return value


class Item(Value):
    """What became of one object of a request."""

    index: int
    id: str = ""
    """Its own, or the one that its content gives it."""
    status: Literal["accepted", "repeated", "refused"]
    """accepted: Kafka has acknowledged it; repeated: it had before."""
    problem: Problem | None = None


class Receipt(Value):
    """What became of the objects of a request; acknowledged by Kafka unless refused."""

    accepted: int = 0
    repeated: int = 0
    refused: int = 0
    items: tuple[Item, ...] = ()


class Listed(Value):
    """One playbook in a list."""

    name: LineName
    version: int
    entries: int
    """Those that agents are shown."""
    proposed: int = 0
    batch_sequence: int
    origin: Origin
    branch: Branch | None = None
    """Of a branch: where it was forked, and what it does in its own way."""
    labels: dict[str, int]
    """Label → version."""
    gate: tuple[Judge, ...] = ()
    """Who must accept a version before it is read without a label; then that is ``production``."""
    created_at_ms: int


class Page(Value):
    """Some playbooks in the order of their names."""

    playbooks: tuple[Listed, ...]
    next: LineName | None = None
    """Ask again with ``after`` set to this; None: these are the last."""


class Tokens(Value):
    """Tokens that the model read and wrote; ``cached``: of those read, from the server's prompt cache."""

    read: int
    cached: int = 0
    written: int


class VersionRow(Value):
    """One version without its entries: where it came from, what it changed, what it cost."""

    version: int
    origin: Origin
    batch_id: str = ""
    batch_sequence: int | None = None
    base_version: int = 0
    staleness: int = 0
    reflections: int = 0
    outcomes: Outcomes = Outcomes()
    """What the runs behind the batch came to, as far as their producers said: means of scores, successes."""
    sources: dict[str, int] = Field(default_factory=dict)
    """The batch's reflections by source, of the 20 that have most."""
    entries: int = 0
    """Those that agents are shown."""
    proposed: int = 0
    issued_by: str = ""
    """Who asked for it: `key:NAME`, `user:NAME@HOST`; empty: a batch."""
    changes: dict[str, int]
    """Changes by kind."""
    model_calls: int = 0
    tokens: Tokens
    retention: tuple[float, ...] = ()
    """Share of the batch's reflections that were new or known after each level, and in the playbook."""
    audit: tuple[LevelAudit, ...] = ()
    """What became of them at each level, and in the playbook; empty: it had none."""
    degraded: bool = False
    closed_at_ms: int = 0
    created_at_ms: int = 0


class Versions(Value):
    """Some versions of a playbook, newest first."""

    name: LineName
    versions: tuple[VersionRow, ...]
    next: int | None = None
    """Ask again with ``before`` set to this; None: these are the oldest retained."""


class VersionEvent(Value):
    """The data of a ``version`` event: the playbook, or its text in the format that was asked for."""

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
    """The data of a ``label`` event: a label points at this version from now on; 0: at none."""

    name: LineName
    label: str
    version: int
    gate: tuple[Judge, ...] = ()
    """Of ``production`` under a gate: its judges."""
    canary: CanaryTerms | None = None
    """Of ``candidate``: which callers are shown it."""


class Sent(Value):
    """A command that Kafka has acknowledged; ``done`` once its effect is there."""

    command_id: str
    done: bool = False
    version: int | None = None
    """The newest version, once done; of a label, the version that it points at."""
    changed: bool = True
    """False: it said nothing new, and nothing was sent."""
    labels: dict[str, int] = Field(default_factory=dict)
    """After a revocation: labels that still serve what is revoked, with their versions."""


def listed(playbook: Playbook, labels: dict[str, Label]) -> Listed:
    """Return one line of the list."""
    gate = labels[PRODUCTION].gate if PRODUCTION in labels else ()
    row = list_row(playbook, {}, {label.label: label.version for label in labels.values()})
    return Listed.model_validate({**row, "branch": playbook.branch, "gate": gate})


def as_row(playbook: Playbook) -> VersionRow:
    """Return one version without its entries."""
    usage = playbook.usage
    return VersionRow(
        **version_row(playbook),
        outcomes=playbook.batch.plan.outcomes if playbook.batch else Outcomes(),
        tokens=Tokens(read=usage.tokens_in, cached=usage.cached_tokens, written=usage.tokens_out),
    )
