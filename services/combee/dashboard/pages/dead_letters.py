"""Dead letters with their reasons; secrets are not shown."""

from nicegui import ui

from combee.dashboard.pieces import fill, following, heading, table, unreadable
from combee.dashboard.views.rows import dead_rows
from combee.gateway.context import Context
from combee_schemas import topics

COLUMNS = {
    "at": "at (UTC)",
    "service": "service",
    "origin": "origin",
    "record": "record",
    "playbook": "playbook",
    "reason": "reason",
}


def page(context: Context) -> None:
    """Build the page."""
    heading("Dead letters")
    unreadable(context, topics.DEAD_LETTERS)
    total = ui.label()
    ui.label(
        "'combee dlq show ID' shows a dead letter; 'combee dlq retry ID' publishes its record again."
    ).classes("quiet")
    rows = table(COLUMNS, key="id", label="Dead letters")

    def show() -> None:
        now = context.live.shared()
        total.text = (
            f"{now.dead_letters} since 15 minutes before this gateway started"
            if now.dead_letters
            else "None."
        )
        fill(rows, dead_rows(now))

    following(context, show)
