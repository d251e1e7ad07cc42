"""Dead letters with their reasons, and the button that publishes their records again; secrets are not shown."""

import structlog
from nicegui import ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.commands import RefusedError
from combee.core.log.live.values import LiveDeadLetter
from combee.core.text.redact import redacted
from combee.dashboard.admin import Admin
from combee.dashboard.pieces import fill, following, heading, table, unreadable
from combee.dashboard.views.rows import dead_rows
from combee.gateway.context import Context
from combee.gateway.problems import Refusal
from combee.log.commands import dead_letters
from combee_schemas import topics
from combee_schemas.dead_letter import letter_id

logger = structlog.get_logger()

COLUMNS = {
    "id": "id",
    "state": "state",
    "at": "at (UTC)",
    "service": "service",
    "origin": "origin",
    "record": "record",
    "playbook": "playbook",
    "reason": "reason",
}
STATE = """<q-td :props="props">
<q-btn v-if="props.row.is_open" flat dense no-caps color="primary" icon="replay" label="Retry"
  :aria-label="'Retry ' + props.row.id" @click="() => $parent.$emit('retry', props.row.id)"></q-btn>
<span v-else>{{ props.value }}</span></q-td>"""


def page(context: Context, admin: Admin) -> None:
    """Build the page."""
    heading("Dead letters")
    unreadable(context, topics.DEAD_LETTERS)
    total = ui.label()
    about = ui.label(
        "Retry publishes the record again, once its cause is fixed. 'combee dlq show ID' prints the whole"
        " record; 'combee dlq drop ID' closes the dead letter without a retry."
    ).classes("quiet")
    status = ui.label().classes("outcome").props("role=status")
    status.set_visibility(False)
    rows = table(COLUMNS, key="id", label="Dead letters")
    rows.add_slot("body-cell-state", STATE)

    async def retry(identity: str) -> None:
        # The browser names only the letter: rights are checked for the playbook that the letter itself names.
        letters = {letter.id: letter for letter in context.live.shared().dead_letters_recent}
        status.text = await _retried(context, admin, letters[identity]) if identity in letters else ""
        status.set_visibility(bool(status.text))

    rows.on("retry", lambda event: retry(str(event.args)))

    def show() -> None:
        now = context.live.shared()
        total.text = (
            f"{now.dead_letters} open; counted from 15 minutes before this gateway started"
            if now.dead_letters_recent
            else "None."
        )
        about.set_visibility(bool(now.dead_letters_recent))
        rows.set_visibility(bool(now.dead_letters_recent))
        fill(rows, dead_rows(now))

    following(context, show)


async def _retried(context: Context, admin: Admin, letter: LiveDeadLetter) -> str:
    """Publish a dead letter's record again, if the caller may; return the outcome in words."""
    identity, playbook = letter_id(letter.id), letter.playbook
    if identity is None:
        return ""
    try:
        caller = admin.caller(playbook)
        decided = await dead_letters.retry(context.log, context.clock, [identity])
    except Refusal as refusal:
        return refusal.problem.detail
    except (RefusedError, TransientError, FatalError) as error:
        return redacted(f"{identity} was not published again: {error}; try 'combee dlq retry {identity}'")
    if decided.refused:
        return redacted(f"{identity} cannot be published again: {decided.refused[0].why}")
    logger.info("dead_letter_retried", letter=str(identity), playbook=playbook, key=caller.name)
    if decided.before:
        return f"{identity} was {decided.before[0].decision} before."
    return f"{identity} was published again; if it fails again, it becomes a new dead letter."
