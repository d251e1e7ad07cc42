"""``GET /v1/playbooks/{name}/events``: every version pushed as a server-sent event, resumable without a gap.

A client that reads too slowly is dropped, and continues from ``history`` when it reconnects with ``Last-Event-ID``.
"""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Depends, Header, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from combee.adapters.ports import TransientError
from combee.core.commands import is_deleted
from combee.core.formats.files import Format
from combee.core.gate.gate import is_gated
from combee.core.playbook.shown import shown
from combee.gateway import playbooks
from combee.gateway.access.access import allowed, check_touch
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.endpoints.reading import Counters, Shape, State
from combee.gateway.names import Name
from combee.gateway.problems import Refusal, busy, problems
from combee.gateway.values import DeletedEvent, LabelEvent, VersionEvent
from combee_schemas.base import Value
from combee_schemas.errors import OtherVersionError
from combee_schemas.playbook import PRODUCTION, Playbook

logger = structlog.get_logger()

EVENT_ID = re.compile(r"(?P<version>[0-9]{1,10})(?:@(?P<place>[0-9]{1,18}))?")
EVENTS_KEPT = 64
PART_BYTES = 1 << 16
"""Bytes of an event that are sent at a time: the server keeps what a client does not read, for each stream."""
RETRY_MS = 1000
"""Time before a client reconnects, unless the client has its own."""
LabelsTold = dict[str, LabelEvent]
"""Label events that a stream has sent, by label."""


class Events:
    """The streams of one gateway."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._limits = context.limits
        self._written: OrderedDict[tuple[str, int, Shape], bytes] = OrderedDict()
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Number of open streams."""
        return self._open.total()

    async def events(
        self,
        caller: Annotated[Caller, Depends(allowed("playbooks:read"))],
        name: Name,
        form: Annotated[
            Format, Query(alias="format", description="format of the playbook in the events")
        ] = "json",
        state: State = "active",
        counters: Counters = None,
        label: Annotated[
            Literal["latest"] | None,
            Query(
                description="`latest` sends every new version; by default a gated playbook sends only `production`"
            ),
        ] = None,
        last_event_id: Annotated[
            str | None,
            Header(
                pattern=r"^[0-9]{1,10}(@[0-9]{1,18})?$",
                description="the id of the last event received, or a version; later events are sent first",
            ),
        ] = None,
    ) -> Response:
        """Push every new version of a playbook, starting with the newest; the playbook need not exist yet.

        For a gated playbook, push each version that `production` comes to point at, unless all are requested.
        """
        check_touch(caller, name)
        playbooks.check_current(self._context)
        if self._open[caller.name] >= self._limits.streams:
            raise busy("too many event streams of this key are open")
        shape = Shape(form=form, state=state, counters=counters)
        if label is None and self._is_gated(name):
            followed = self._follow_production(name, shape, last_event_id)
        else:
            position = await self._position(name, last_event_id)
            followed = self._follow(name, shape, position, every=label is not None)
        return _Stream(
            self._counted(caller.name, followed),
            ping=self._limits.heartbeat_s,
            send_timeout=self._limits.send_timeout_s,
        )

    async def _position(self, name: str, last_event_id: str | None) -> int | None:
        """Return the position in ``history`` after which to continue, None for the newest version."""
        given = EVENT_ID.fullmatch(last_event_id or "")
        if given is None:
            return None
        if given["place"] is not None:
            return int(given["place"])
        version = int(given["version"])
        places = await self._context.history.places(name)
        older = [place for known, place in places.items() if known <= version]
        return max(older, default=-1)

    def _is_gated(self, name: str, version: Playbook | None = None) -> bool:
        production = playbooks.labels_of(self._context, name).get(PRODUCTION)
        return is_gated(production, version or self._context.playbooks.latest(name))

    async def _follow_production(
        self, name: str, shape: Shape, last_event_id: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield each version that agents read; the stream ends when the gate is removed."""
        given = EVENT_ID.fullmatch(last_event_id or "")
        sent, labels = int(given["version"]) if given else 0, LabelsTold()
        changed = self._context.changed
        while not self._context.stopping.is_set() and self._is_gated(name):
            seen = changed.seen
            production = playbooks.labels_of(self._context, name).get(PRODUCTION)
            number = production.version if production else 0
            if number != sent:
                version = await self._context.history.exactly(name, number)
                if version is not None:
                    yield self._event(version, shape)
                sent = number
            for event in self._moved(name, labels):
                yield event
            await changed.wait(seen, self._limits.heartbeat_s)

    async def _follow(
        self, name: str, shape: Shape, position: int | None, *, every: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield every version; the stream ends when a gate is added, unless every version is requested."""
        feed, labels = self._context.feed, LabelsTold()
        latest = self._context.playbooks.latest(name)
        if position is None and latest.version:
            position = latest.history_offset
            yield self._event(latest, shape)
        if position is None:
            position = await feed.start(name)
        while not self._context.stopping.is_set() and (every or not self._is_gated(name)):
            seen = feed.changed.seen
            async with aclosing(feed.after(name, position)) as versions:
                async for version in versions:
                    if version.version > self._context.playbooks.latest(name).version:
                        # Reads do not have this version yet, and a client must be able to read what it is told of.
                        break
                    if not every and self._is_gated(name, version):
                        return
                    position = version.history_offset
                    yield self._event(version, shape)
            for event in self._moved(name, labels):
                yield event
            await feed.changed.wait(seen, self._limits.heartbeat_s)

    def _moved(self, name: str, labels: LabelsTold) -> list[bytes]:
        """Return events for moved labels, and remember their versions."""
        known = playbooks.labels_of(self._context, name)
        now = {
            label: LabelEvent(
                name=name, label=label, version=pointer.version, gate=pointer.gate, canary=pointer.canary
            )
            for label, pointer in known.items()
        }
        moved = [event for label, event in now.items() if labels.get(label) != event]
        gone = [LabelEvent(name=name, label=label, version=0) for label in labels if label not in now]
        labels.clear()
        labels.update(now)
        return [_encoded("label", event) for event in (*moved, *gone)]

    def _event(self, version: Playbook, shape: Shape) -> bytes:
        """Return one version as an event, rendered once for all streams."""
        key = (version.name, version.version, shape)
        if key not in self._written:
            self._written[key] = _event(version, shape)
            while len(self._written) > EVENTS_KEPT:
                self._written.popitem(last=False)
        return self._written[key]

    async def _counted(self, key: str, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        self._open[key] += 1
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except (TransientError, OtherVersionError) as error:
            # The client reconnects with Last-Event-ID; by then Kafka may be back, or this process upgraded.
            logger.warning("stream_ended", error=str(error))
        finally:
            self._open[key] -= 1


class _Stream(EventSourceResponse):
    """A response whose client may be dropped, which is no error of the gateway."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.Lock()

        async def send_in_parts(message: Message) -> None:
            body = message.get("body", b"")
            ends = range(PART_BYTES, len(body), PART_BYTES)
            async with sending:  # no heartbeat within an event
                for end in ends:
                    await send({**message, "body": body[end - PART_BYTES : end], "more_body": True})
                await send({**message, "body": body[len(ends) * PART_BYTES :]} if ends else message)

        try:
            await super().__call__(scope, receive, send_in_parts)
        except* SendTimeoutError:  # of an event, of a heartbeat, or of both
            logger.info("stream_dropped", reason="the client read nothing for too long")


def _event(version: Playbook, shape: Shape) -> bytes:
    place = f"{version.version}@{version.history_offset}"
    if is_deleted(version):
        return _encoded("deleted", DeletedEvent(name=version.name, version=version.version), place)
    about = VersionEvent(
        name=version.name, version=version.version, format=shape.form, created_at_ms=version.created_at_ms
    )
    try:
        whole = version if shape.state == "all" else shown(version)
        said = {"playbook": whole} if shape.form == "json" else {"text": shape.text(version)}
    except Refusal:  # the format cannot express this version; the client learns that it exists
        said = {}
    return _encoded("version", about.model_copy(update=said), place)


def _encoded(kind: str, data: Value, place: str | None = None) -> bytes:
    text = data.model_dump_json(exclude_none=True)
    return ServerSentEvent(event=kind, id=place, data=text, retry=RETRY_MS, sep="\n").encode()


def router(streams: Events) -> APIRouter:
    """Return the endpoint."""
    routes = APIRouter(tags=["playbooks"])
    stream = {"description": "Events: version, label, deleted.", "content": {"text/event-stream": {}}}
    routes.add_api_route(
        "/v1/playbooks/{name:playbook}/events",
        streams.events,
        response_class=Response,
        responses={200: stream, **problems()},
    )
    return routes
