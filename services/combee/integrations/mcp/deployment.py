"""What the MCP server asks of a deployment, with one caller's rights: a port, and its adapter for a gateway."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from combee.adapters.clock import moment
from combee.adapters.http import GatewayTransport
from combee.adapters.http.errors import AbsentError
from combee.adapters.http.queries import GatewayQueries, Page
from combee.adapters.ports import PoisonError
from combee.core.playbook.versions import origin_text
from combee.sdk import AsyncClient, PlaybookView
from combee_schemas.base import playbook_of
from combee_schemas.playbook import Change, Entry, Playbook
from combee_schemas.topics import Published

OnUpdate = Callable[[PlaybookView], object]
MAX_SOURCES = 5
"""Maximum number of reflections looked up per entry: its newest."""


class Deployment(Protocol):
    """A deployment with one caller's rights; errors are CombeeErrors with a remedy."""

    async def playbooks(self, after: str | None) -> Page:
        """Return playbooks in the order of their names."""

    async def playbook(self, name: str, *, label: str | None = None, version: int | None = None) -> Playbook:
        """Return one version, the newest by default."""

    async def newest_version(self, name: str) -> int:
        """Return the newest version's number; 0 if there is none."""

    async def send(self, message: Published) -> None:
        """Send a message and return after Kafka's acknowledgement."""

    async def why(self, playbook: str, entry_id: str) -> Sequence[str]:
        """Return lines about an entry's origin."""

    def on_update(self, name: str, callback: OnUpdate) -> Callable[[], None]:
        """Call ``callback`` with the present version and each newer one; return a function that ends it."""

    async def close(self) -> None:
        """Disconnect."""


class GatewayDeployment:
    """A ``Deployment`` behind a gateway, which answers or refuses each request by the caller's key."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url, self._api_key = url, api_key
        self._queries = GatewayQueries(url, api_key=api_key)
        self._transport = GatewayTransport(url, api_key=api_key)
        self._client: AsyncClient | None = None
        """Follows playbooks; None while nobody listens, so that an unused key keeps no stream open."""
        self._listening = 0
        self._closing: set[asyncio.Task[object]] = set()

    async def playbooks(self, after: str | None) -> Page:
        return await self._queries.playbooks(after=after)

    async def playbook(self, name: str, *, label: str | None = None, version: int | None = None) -> Playbook:
        return await self._queries.playbook(name, label=label, version=version)

    async def newest_version(self, name: str) -> int:
        try:
            return (await self._queries.playbook(name)).version
        except AbsentError:
            return 0

    async def send(self, message: Published) -> None:
        await self._transport.send([message])

    async def why(self, playbook: str, entry_id: str) -> Sequence[str]:
        newest = await self._queries.playbook(playbook)
        entry = next((entry for entry in newest.entries if entry.id == entry_id), None)
        if entry is None:
            raise PoisonError(f"{playbook} has no entry {entry_id} in version {newest.version}")
        numbers = sorted({entry.created_version, entry.updated_version} - {0})
        versions = await asyncio.gather(*(self._version(playbook, number) for number in numbers))
        lines = [_about(newest, entry)]
        lines += [
            _change(version, change)
            for version in versions
            if version is not None
            for change in version.changes
            if change.entry_id == entry_id
        ]
        sources = entry.evidence[-MAX_SOURCES:]
        lines += await asyncio.gather(
            *(self._source(playbook_of(playbook), reflection_id) for reflection_id in sources)
        )
        if (earlier := entry.evidence_count - len(sources)) > 0:
            lines.append(
                f"and {earlier} earlier reflections; 'combee why {entry_id}' with access to Kafka lists all"
            )
        return lines

    async def _version(self, playbook: str, number: int) -> Playbook | None:
        try:
            return await self._queries.playbook(playbook, version=number)
        except AbsentError:
            return None

    async def _source(self, playbook: str, reflection_id: str) -> str:
        try:
            status = await self._queries.reflection(reflection_id, playbook)
        except PoisonError:  # an import's evidence is no reflection, and old reflections expire
            return f"reflection {reflection_id}: no longer in the log, or given by hand"
        return f"reflection {reflection_id}: {status.detail}"

    def on_update(self, name: str, callback: OnUpdate) -> Callable[[], None]:
        if self._client is None:
            self._client = AsyncClient(self._url, api_key=self._api_key)
        self._listening += 1
        end = self._client.on_update(name, callback)

        def stop() -> None:
            end()
            self._listening -= 1
            if not self._listening:
                self._unfollow()

        return stop

    def _unfollow(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            task: asyncio.Task[object] = asyncio.create_task(client.close(0))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    @property
    def is_idle(self) -> bool:
        """Whether there are no listeners."""
        return not self._listening

    async def close(self) -> None:
        self._unfollow()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._queries.close()
        await self._transport.close()


def _about(newest: Playbook, entry: Entry) -> str:
    counts = f"helpful {entry.helpful}, harmful {entry.harmful}, {entry.evidence_count} reflections"
    state = "" if entry.is_active else f", only {entry.state}"
    return f"[{entry.id}] {entry.content}\n{newest.name} version {newest.version}, {entry.section}{state}; {counts}"


def _change(version: Playbook, change: Change) -> str:
    head = (
        f"version {version.version} ({origin_text(version)}, {moment(version.created_at_ms)}): {change.kind}"
    )
    return f"{head} {change.detail}".rstrip()


def key_of(authorization: str | None) -> str | None:
    """Return the key in a request's ``Authorization`` header."""
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
