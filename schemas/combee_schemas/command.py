"""Command: a request of an operator to shuffle (flush, consolidate, branch) or publish (the rest)."""

from typing import ClassVar, Literal

from combee_schemas.base import BranchName, Holds, Id, LineName, Message, OnErasure
from combee_schemas.batch import Cluster
from combee_schemas.gate import Reason, RejectedNames
from combee_schemas.marks import FromReflections, Name, Text, ThroughReflections
from combee_schemas.plan import BranchSettings
from combee_schemas.playbook import BudgetTokens, Entry
from combee_schemas.scan import Operation

CommandKind = Literal[
    "flush",
    "import",
    "edit",
    "promote",
    "approve",
    "reject",
    "rollback",
    "adopt",
    "revoke",
    "pause",
    "resume",
    "delete",
    "consolidate",
    "branch",
]


class Command(Message):
    """Idempotent by id; key: playbook.

    flush: close windows until everything at or below ``through_offset`` of ``reflections`` is in a batch. import:
    ``entries``, ``sections``, ``counters``, ``holds``, ``budget_tokens`` replace the content. edit:
    ``operations`` are applied, unless an entry they name has changed since ``base_version``. promote: ``label``
    moves to ``version``. rollback: a new version equal to ``version``. approve, reject: a person's verdict, with
    ``reason``, on ``version``, the candidate of a gated playbook, compared with ``base_version``, the production
    version. If ``entry_ids`` or ``sources`` are given, only the candidate's changes to these entries, or learned
    from these sources, are rejected. adopt: a new version with the content of ``version`` of the branch
    ``PLAYBOOK@branch``. revoke: ``reflection_ids`` no longer count, now or later, on the playbook and its
    branches; ``rules`` chose them. pause: no trace is reflected on and no batch is cut until ``until_ms``, on the
    playbook and its branches; what waits stays in the log. resume: ends a pause. delete: the playbook is gone; its
    history stays. branch: ``PLAYBOOK@branch`` is forked, and learns under ``settings``. consolidate: a batch
    without reflections asks the model to merge similar entries and to judge harmful ones.
    """

    type: ClassVar[str] = "command"
    version_number: ClassVar[int] = 2
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    command_id: Id
    playbook: LineName
    kind: CommandKind
    through_offset: ThroughReflections = -1
    left_out: tuple[int, ...] | None = None
    """In a replay's flush: recorded coverage of the batch that it closes."""
    entries: tuple[Entry, ...] = ()
    sections: tuple[Text, ...] = ()
    counters: bool = True
    holds: Holds = "entries"
    budget_tokens: BudgetTokens = 0
    """In an import: the playbook's token budget, if the configured one does not hold the entries; 0: none."""
    operations: tuple[Operation, ...] = ()
    version: int = 0
    label: Name = ""
    base_version: int = 0
    """The version an edit is based on; 0: the newest one."""
    reason: Reason = ""
    """Reason for approving or rejecting a candidate."""
    entry_ids: RejectedNames = ()
    sources: RejectedNames = ()
    reflection_ids: tuple[Name, ...] = ()
    rules: tuple[Text, ...] = ()
    """In a revocation: the rules that chose its reflections; empty: they were named by id."""
    retained_from: FromReflections = 0
    """In a revocation: first retained offset when it was decided; earlier reflections had expired."""
    clusters: tuple[Cluster, ...] | None = None
    """In a replay's consolidation: the clusters of the recorded one."""
    branch: BranchName = ""
    settings: BranchSettings | None = None
    until_ms: int = 0
    """In a pause: its end."""
    by_retention: bool = False
    """In a pause: whether the topics' retention set its end."""
    issued_at_ms: int = 0
    issued_by: Name = ""
    """Declared issuer: ``key:NAME`` at the gateway, ``user:NAME@HOST`` on the command line."""

    @property
    def line(self) -> str:
        """The line of the command: the playbook, or the branch that is created or adopted."""
        return f"{self.playbook}@{self.branch}" if self.branch else self.playbook
