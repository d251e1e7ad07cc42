"""Does it help? Success by version, with the changes of each."""

from nicegui import ui

from combee.adapters.ports import FatalError, TransientError
from combee.dashboard.pieces import fill, heading, table
from combee.dashboard.views.outcomes import newest_lines, outcome_rows
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee_schemas.playbook import Change

COLUMNS = {
    "line": "playbook",
    "version": "version",
    "success": "success (95 % interval)",
    "runs": "runs",
    "unscored": "unscored",
    "scores": "scores",
    "changes": "what changed",
}
REFRESH_S = 5.0


class Outcomes:
    """A table of the playbooks with the latest outcomes, hidden while there are none."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._changes: dict[tuple[str, int], tuple[Change, ...]] = {}
        self._section = ui.element("section")
        self._table: ui.table | None = None
        ui.timer(REFRESH_S, self._look)

    async def _look(self) -> None:
        """Show the present outcomes; without the log the page stays unchanged."""
        try:
            statistics = await self._context.outcomes.by_line()
            lines = newest_lines(statistics, playbooks.newest_by_name(self._context))
            for line in lines:
                for version in line.versions:
                    await self._read_changes(line.name, version.version)
        except (FatalError, TransientError):
            return
        if self._section.is_deleted:
            return
        if self._table is None and lines:
            self._table = self._made()
        if self._table is not None:
            fill(self._table, outcome_rows(lines, self._changes))

    def _made(self) -> ui.table:
        with self._section.props('aria-label="Does it help?"'):
            heading("Does it help?", 2)
            return table(
                COLUMNS,
                key="key",
                label="Success over versions",
                on_open=lambda row: ui.navigate.to(address(str(row["line"]), int(str(row["version"])))),
            )

    async def _read_changes(self, name: str, version: int) -> None:
        if (name, version) not in self._changes:
            latest = self._context.playbooks.latest(name)
            made = await self._context.history.exactly(name, version, latest) if version else None
            self._changes[name, version] = made.changes if made else ()
