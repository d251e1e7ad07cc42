"""Playbooks that the configured method would destroy: their windows wait, and it is said aloud once each."""

import structlog

from combee.core.playbook.apply import misfit
from combee.worker.views import Playbooks
from combee_schemas.base import Holds

logger = structlog.get_logger()


class Misfits:
    """Asks ``core`` whether a playbook holds what the method works on; remembers only what it has said."""

    def __init__(self, holds: Holds, method: str, playbooks: Playbooks) -> None:
        self._holds = holds
        self._method = method
        self._playbooks = playbooks
        self._told: set[str] = set()

    def holds(self, playbook: str) -> bool:
        """Return whether the next batch must wait for another method or another content."""
        reason = misfit(self._playbooks.latest(playbook), self._holds, self._method)
        if reason is None:
            self._told.discard(playbook)
        elif playbook not in self._told:
            self._told.add(playbook)
            logger.error("method_misfit", playbook=playbook, reason=reason)
        return reason is not None
