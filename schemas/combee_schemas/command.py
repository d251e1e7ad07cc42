"""Command: what an operator asks of shuffle (flush, consolidate, branch) and publish (the rest)."""

from typing import ClassVar, Literal

from combee_schemas.base import BranchName, Holds, Id, LineName, Message, OnErasure
from combee_schemas.batch import Cluster
from combee_schemas.gate import Reason, RejectedNames
from combee_schemas.marks import FromReflections, Name, Text, ThroughReflections
from combee_schemas.plan import BranchSettings
from combee_schemas.playbook import Entry
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
    "delete",
    "consolidate",
    "branch",
]


class Command(Message):
    """Idempotent by id; key: playbook.

    flush: close windows until everything at or below ``through_offset`` of ``reflections`` is in a batch.
    import: ``entries``, ``sections``, ``counters``, ``holds`` replace the content. edit: ``operations`` are applied,
    unless an entry that they name has changed since ``base_version``.
    promote: ``label`` moves to ``version``. rollback: a new version equal to ``version``.
    approve, reject: what a person says of ``version``, the candidate of a gated playbook, with ``reason``, having
    seen it beside ``base_version``, the production version. Where ``entry_ids`` or ``sources`` are named, only what
    the candidate changes in these entries, or learned from these sources, is rejected.
    adopt: a new version that says what ``version`` of the branch ``PLAYBOOK@branch`` says.
    revoke: ``reflection_ids`` no longer count, now or later, on the playbook and its branches; ``rules`` chose them.
    delete: the playbook is gone; its history stays.
    branch: a line ``PLAYBOOK@branch`` is forked, which learns under ``settings``.
    consolidate: a batch without reflections asks the model to merge entries that are alike and to judge harmful ones.
    """

    type: ClassVar[str] = "command"
    version_number: ClassVar[int] = 2
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    command_id: Id
    playbook: LineName
    kind: CommandKind
    through_offset: ThroughReflections = -1
    left_out: tuple[int, ...] | None = None
    """Of a replay's flush: the recorded coverage of the batch that it closes."""
    entries: tuple[Entry, ...] = ()
    sections: tuple[Text, ...] = ()
    counters: bool = True
    holds: Holds = "entries"
    operations: tuple[Operation, ...] = ()
    version: int = 0
    label: Name = ""
    base_version: int = 0
    """What an edit was made on; 0: whatever there is."""
    reason: Reason = ""
    """Why a candidate is approved or rejected."""
    entry_ids: RejectedNames = ()
    sources: RejectedNames = ()
    reflection_ids: tuple[Name, ...] = ()
    rules: tuple[Text, ...] = ()
    """Of a revocation: what its reflections were chosen by; empty: by their ids."""
    retained_from: FromReflections = 0
    """Of a revocation: reflections before this offset had expired when it was decided."""
    clusters: tuple[Cluster, ...] | None = None
    """Of a replay's consolidation: what the recorded one asked about."""
    branch: BranchName = ""
    settings: BranchSettings | None = None
    issued_at_ms: int = 0
    issued_by: Name = ""
    """Who says to have asked: ``key:NAME`` of the gateway, ``user:NAME@HOST`` of the command line."""

    @property
    def line(self) -> str:
        """The line that it is about: the playbook, or the branch that is to be or to be adopted."""
        return f"{self.playbook}@{self.branch}" if self.branch else self.playbook
