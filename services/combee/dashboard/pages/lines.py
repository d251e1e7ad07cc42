"""A playbook compared with its branches, on the page of each: settings, lessons, cost."""

from nicegui import background_tasks, ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.playbook.side_by_side import Line
from combee.dashboard.pieces import fill, heading, table
from combee.dashboard.views.rows import line_rows
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.log.inspection.branches import SideBySide
from combee_schemas.base import playbook_of

COLUMNS = {
    "name": "line",
    "forked": "forked from",
    "version": "version",
    "entries": "entries",
    "versions": "versions",
    "reflections": "reflections",
    "calls": "calls",
    "tokens": "tokens",
    "retention": "retention",
    "omitted": "omitted",
    "today": "tokens today",
    "window": "window",
    "paused": "paused",
}


class BranchSection:
    """The section of a playbook and its branches, hidden without branches."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._playbook = playbook_of(name)
        self._side_by_side = SideBySide(context.history)
        self._lines: list[Line] = []
        self._read: dict[str, int] = {}
        """The newest version read of the playbook and of each branch."""
        self._is_reading = False
        with ui.element("section").props('aria-label="Branches"') as self._shown:
            heading("Side by side since the fork", 2)
            self._rows = table(
                COLUMNS,
                key="name",
                label="Lines",
                on_open=lambda row: ui.navigate.to(address(str(row["name"]))),
            )
        self._shown.set_visibility(False)

    def look(self) -> None:
        """Show the present state; read newer versions."""
        stored = playbooks.lines_of(self._context, self._playbook)
        newest = {name: line.version for name, line in stored.items()}
        if newest != self._read and not self._is_reading:
            self._is_reading = True
            background_tasks.create(self._read_on(newest))
        self._shown.set_visibility(len(self._lines) > 1)
        fill(self._rows, line_rows(self._lines, self._context.live.shared().playbooks, stored))

    async def _read_on(self, newest: dict[str, int]) -> None:
        try:
            stored = playbooks.lines_of(self._context, self._playbook)
            self._lines = list(await self._side_by_side.lines(stored, self._playbook))
            self._read = newest
        except (TransientError, FatalError):
            return  # the old content stays; tried again at the next refresh
        finally:
            self._is_reading = False
