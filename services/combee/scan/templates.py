"""Whether a batch was planned with the prompt templates that this worker has."""

import structlog

from combee.core.methods.method import Method
from combee.core.methods.templates import templates_hash
from combee_schemas.plan import Plan, Prompts

logger = structlog.get_logger()

LOGGED_KEPT = 100
"""Number of batches remembered whose differing templates were logged."""


class Templates:
    """The hashes of a worker's own templates; a batch with others is logged once."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, Prompts, bool], str] = {}
        self._logged: set[str] = set()

    def difference(self, plan: Plan, method: Method) -> str:
        """Return a note for the result if a batch was planned with other templates than this worker has.

        After an upgrade no worker has the old templates, and refusing would dead-letter the batch. So the
        difference is logged and noted in the result; the hashes of the requests identify the prompts.
        """
        planned_with, settings = plan.settings.templates, plan.settings
        proposes = settings.probation is not None or settings.trust != "lab"
        asked = (settings.method, settings.prompts, proposes)
        own = self._own.get(asked) or self._own.setdefault(
            asked, templates_hash(method, settings.prompts, proposes=proposes)
        )
        if planned_with == own:
            return ""
        if plan.batch_id not in self._logged:
            if len(self._logged) >= LOGGED_KEPT:
                self._logged.clear()
            self._logged.add(plan.batch_id)
            logger.error(
                "templates_differ",
                playbook=plan.playbook,
                sequence=plan.sequence,
                method=plan.settings.method,
                planned_with=planned_with,
                own=own,
                remedy="run one version of Combee in all services",
            )
        return f"asked with other templates ({own[:12]}) than it was planned with ({planned_with[:12]})"
