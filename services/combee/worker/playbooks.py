"""Playbooks as services see them: the newest from memory, any other version from history."""

from collections.abc import Callable

from combee.core.playbook.apply import empty
from combee.ports import Log, TopicPartition, TransientError
from combee.worker.view import View
from combee_schemas import topics
from combee_schemas.playbook import Playbook, deleted_key

CACHED_VERSIONS = 64


class Playbooks:
    """A view of ``playbooks`` plus exact versions on demand."""

    def __init__(
        self, log: Log, on_change: Callable[[str, Playbook | None], None] = lambda _n, _p: None
    ) -> None:
        self._log = log
        self._cache: dict[tuple[str, int], Playbook] = {}
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
        if (name, version) not in self._cache:
            while len(self._cache) >= CACHED_VERSIONS:
                del self._cache[next(iter(self._cache))]
            self._cache[name, version] = await self._fetch(name, history_offset)
        return self._cache[name, version]

    async def _fetch(self, name: str, offset: int) -> Playbook:
        partition = await self._log.partition_for(topics.HISTORY.name, name.encode())
        source = TopicPartition(topic=topics.HISTORY.name, partition=partition)
        found = await self._log.read_at(source, [offset])
        if offset not in found:
            raise TransientError(f"history[{partition}] has no record at {offset} yet")
        return topics.HISTORY.read(found[offset])
