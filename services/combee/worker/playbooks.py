"""Playbooks as services see them: the newest from memory, any other version from history."""

from collections.abc import Callable

from combee.core.playbook.apply import empty
from combee.history import History
from combee.ports import Log, TransientError
from combee.worker.view import View
from combee_schemas import topics
from combee_schemas.playbook import Playbook, deleted_key


class Playbooks:
    """A view of ``playbooks`` plus exact versions on demand."""

    def __init__(
        self, log: Log, on_change: Callable[[str, Playbook | None], None] = lambda _n, _p: None
    ) -> None:
        self._history = History(log)
        self.view: View[Playbook] = View(
            log,
            topics.PLAYBOOKS,
            newer=lambda new, old: new.version > old.version,
            on_change=lambda key, playbook: on_change(playbook.name if playbook else key, playbook),
        )

    def latest(self, name: str) -> Playbook:
        """Return the newest version known, of a deleted playbook what remains; version 0 if there is none."""
        return self.view.get(name) or self.view.get(deleted_key(name)) or empty(name)

    async def exactly(self, name: str, version: int, history_offset: int) -> Playbook:
        """Return one version, from memory or from its place in ``history``."""
        if version == 0:
            return empty(name)
        latest = self.latest(name)
        if latest.version == version:
            return latest
        found = await self._history.at(name, version, history_offset)
        if found is None:
            raise TransientError(f"history has no record of {name} at {history_offset} yet")
        return found
