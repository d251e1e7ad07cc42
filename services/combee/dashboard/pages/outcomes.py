"""Does it help? Success over time, and by version with what each of them changed."""

from collections.abc import Mapping

from nicegui import events, ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.evaluation.outcomes.report import OutcomesReport, curve_of, help_text
from combee.core.log.live.values import LivePlaybook
from combee.dashboard.pieces import chart, draw, fill, heading, table
from combee.dashboard.views import charts
from combee.dashboard.views.outcomes import NOBODY_TELLS, outcome_rows
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.log.reports.outcomes import newest_lines
from combee_schemas.outcome import OutcomeStatistics

COLUMNS = {
    "named": "version",
    "success": "success (95 % interval)",
    "runs": "runs",
    "unscored": "unscored",
    "scores": "scores",
    "changes": "what changed",
}
REFRESH_S = 5.0
ROWS = 6


class Outcomes:
    """Success of one playbook; without outcomes, how to tell them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lines: dict[str, OutcomesReport] = {}
        self._statistics: Mapping[str, OutcomeStatistics] = {}
        with ui.element("section").props('aria-label="Does it help?"') as self._section:
            heading("Does it help?", 2)
            self._select = ui.select([], label="Playbook", on_change=self._show).classes("w-64")
            self._select.props("outlined dense")
            self._text = ui.label().classes("words").props("role=status")
            self._chart = chart("Success over time").on_point_click(self._clicked)
            self._table = table(
                COLUMNS,
                key="key",
                label="Success over versions",
                on_open=lambda row: self._open(int(str(row["version"]))),
                most=ROWS,
            )
        self._section.set_visibility(False)
        ui.timer(REFRESH_S, self._look)

    async def _look(self) -> None:
        """Show the present outcomes; without the log the page stays unchanged."""
        try:
            statistics = await self._context.outcomes.by_line()
        except (FatalError, TransientError):
            return
        if self._section.is_deleted:
            return
        newest = playbooks.newest_by_name(self._context)
        self._statistics = statistics
        self._lines = {line.name: line for line in newest_lines(statistics, newest)}
        if list(self._lines) != self._select.options:
            known = self._select.value in self._lines
            chosen = self._select.value if known else next(iter(self._lines), None)
            self._select.set_options(list(self._lines), value=chosen)
        self._select.set_visibility(len(self._lines) > 1)
        self._section.set_visibility(bool(newest or self._lines))
        self._show()

    def _show(self) -> None:
        """Show the chosen playbook."""
        line = self._lines.get(str(self._select.value))
        for part in (self._chart, self._table):
            part.set_visibility(line is not None)
        if line is None:
            self._text.text = NOBODY_TELLS
            return
        curve = curve_of(self._statistics[line.name], max(version.version for version in line.versions))
        live = self._live(line.name)
        named = f"{line.name}: " if len(self._lines) == 1 else ""
        self._text.text = f"{named}{help_text(curve) or NOBODY_TELLS}"
        self._chart.set_visibility(any(point.at_ms for point in curve.points))
        draw(self._chart, charts.success(curve, live.versions))
        changes = {(line.name, version.version): version.changes for version in live.versions}
        rows = outcome_rows([line], changes)
        unused = {column for column in ("unscored", "scores") if not any(row[column] for row in rows)}
        self._table.props["visible-columns"] = [column for column in COLUMNS if column not in unused]
        fill(self._table, rows, ROWS)

    def _live(self, name: str) -> LivePlaybook:
        shown = self._context.live.shared().playbooks
        return next((book for book in shown if book.name == name), LivePlaybook(name=name))

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        if isinstance(event.data, dict) and event.data.get("version") is not None:
            self._open(int(event.data["version"]))

    def _open(self, version: int) -> None:
        """Open what a version changed; of no version, the playbook."""
        name = str(self._select.value)
        ui.navigate.to(address(name, version, only_changed=True) if version else address(name))
