"""The audit trail of one playbook: decisions about the version that agents read, with issuer, time and reason."""

from contextlib import aclosing

from nicegui import background_tasks, ui

from combee.adapters.ports import FatalError, TransientError
from combee.dashboard.pieces import fill, heading, table
from combee.dashboard.views.gates import audit_rows
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.log.history import messages
from combee.log.reports.decisions import LEARNED, audit_trail
from combee_schemas import topics
from combee_schemas.playbook import Label, Playbook

COLUMNS = {
    "what": "what",
    "at": "when (UTC)",
    "by": "by",
    "reason": "reason",
    "said": "verdicts and figures",
}
VERSIONS = 200
"""Number of newest versions searched for commands; decisions at the gate are all shown."""


class AuditTrail:
    """The section, hidden while there are no decisions."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._name = name
        self._versions: list[Playbook] = []
        """Versions made by commands, without their entries."""
        self._read_to = -1
        self._seen: tuple[int, list[Label]] | None = None
        self._is_reading = False
        with ui.element("section").props('aria-label="Audit trail"') as self._section:
            heading("Audit trail", 2)
            self._trouble = ui.label().classes("wrong words").props("role=status")
            self._table = table(
                COLUMNS, key="key", label="Who decided what", on_open=self._open, virtual=True
            )
            self._table.classes("short")
        self._section.set_visibility(False)

    def look(self) -> None:
        """Read new versions and moved labels."""
        labels = list(playbooks.labels_of(self._context, self._name).values())
        seen = (self._context.playbooks.latest(self._name).version, labels)
        if seen != self._seen and not self._is_reading:
            self._is_reading = True
            background_tasks.create(self._read(seen))

    async def _read(self, seen: tuple[int, list[Label]]) -> None:
        history = self._context.history
        try:
            async with aclosing(messages(self._context.log, topics.DECISIONS, self._name)) as decided:
                decisions = [decision async for decision in decided]
            if self._read_to < 0:
                newest = list((await history.places(self._name)).values())[-VERSIONS:]
                self._read_to = newest[0] if newest else 0
            async with aclosing(history.between(self._name, self._read_to)) as versions:
                async for version in versions:
                    self._read_to = version.history_offset + 1
                    if version.origin not in LEARNED:
                        self._versions.append(version.model_copy(update={"entries": ()}))
        except (TransientError, FatalError) as error:
            if not self._section.is_deleted:
                self._trouble.text = f"It cannot be read now: {error}"  # tried again at the next refresh
                self._section.set_visibility(True)
            return
        finally:
            self._is_reading = False
        if self._section.is_deleted:
            return
        self._seen, self._trouble.text = seen, ""
        rows = audit_rows(audit_trail(decisions, self._versions, seen[1]))
        fill(self._table, rows)
        self._section.set_visibility(bool(rows))

    def _open(self, row: dict[str, object]) -> None:
        ui.navigate.to(address(self._name, int(str(row["version"]))))
