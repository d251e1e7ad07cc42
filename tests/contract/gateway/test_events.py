"""Versions pushed to streams: all of them, in order, whatever a client or the gateway goes through."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, Record
from combee.gateway import feed as feeding
from combee.gateway.access.connections import Guarded
from combee.gateway.endpoints.events import PART_BYTES, _Stream
from combee.gateway.feed import Feed
from combee.log.history import History, placed
from combee.process import server as process_server
from combee_schemas import topics
from combee_schemas.playbook import Playbook
from support.gateway import Event, Stream, labelled, published, served, version
from support.hostile import newer
from support.waiting import until

NAME = "support/refunds"
EVENTS = f"/v1/playbooks/{NAME}/events"


def reached(number: int) -> Callable[[list[Event]], bool]:
    return lambda events: any(one.kind == "version" and one.id.startswith(f"{number}@") for one in events)


def numbers(stream: Stream) -> list[int]:
    return [json.loads(one.data)["version"] for one in stream.of("version")]


async def test_a_stream_begins_with_the_newest_version_and_gets_every_later_one() -> None:
    log = MemoryLog(SystemClock())
    await published(log, *(version(NAME, number) for number in (1, 2, 3)))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=reached(6)))
        await until(lambda: bool(stream.events))
        for number in (4, 5, 6):
            await published(log, version(NAME, number), version("other", number))
        await reading

    assert numbers(stream) == [3, 4, 5, 6]
    assert json.loads(stream.events[-1].data)["playbook"]["entries"][0]["content"] == "lesson of version 6"


async def test_a_branch_is_subscribed_to_like_a_playbook() -> None:
    log, line = MemoryLog(SystemClock()), f"{NAME}@exp"
    await published(log, version(NAME, 7), version(line, 1))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(f"/v1/playbooks/{line}/events")
        reading = asyncio.create_task(stream.read(client, until=reached(2)))
        await until(lambda: bool(stream.events))
        await published(log, version(NAME, 8), version(line, 2))
        await reading
    assert numbers(stream) == [1, 2]


@pytest.mark.parametrize(("query", "told"), [("", 1), ("?state=all", 2)])
async def test_a_stream_has_what_agents_are_shown_unless_more_is_asked_for(query: str, told: int) -> None:
    log = MemoryLog(SystemClock())
    whole = version(NAME, 1, "sure", "perhaps")
    sure, perhaps = whole.entries
    entries = (sure, perhaps.model_copy(update={"state": "proposed"}))
    await published(log, whole.model_copy(update={"entries": entries}))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(f"{EVENTS}{query}")
        await stream.read(client, until=reached(1))
    assert len(json.loads(stream.events[0].data)["playbook"]["entries"]) == told


async def test_a_stream_may_wait_for_a_playbook_that_does_not_exist_yet() -> None:
    log = MemoryLog(SystemClock())
    async with served(log) as (address, context), httpx.AsyncClient(base_url=address) as client:
        streams = [Stream(f"{EVENTS}?format=ace{more}") for more in ("", "&counters=false")]
        reading = asyncio.gather(*(stream.read(client, until=reached(1)) for stream in streams))
        await until(lambda: context.feed.is_current)
        await published(log, version(NAME, 1))
        await reading

    assert [numbers(stream) for stream in streams] == [[1], [1]]
    texts = [json.loads(stream.events[0].data)["text"] for stream in streams]
    assert ["[misc-00001] helpful=0" in text for text in texts] == [True, False]


class LateSnapshots(MemoryLog):
    """A log of which snapshots are read later than all else."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.may_come = asyncio.Event()

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        async for records in super().follow(topic, starts):
            if topic == topics.PLAYBOOKS.name and records:
                await self.may_come.wait()
            yield records


async def test_who_is_told_of_a_version_gets_it_when_it_asks() -> None:
    log = LateSnapshots()
    async with served(log) as (address, context), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=reached(1)))
        await until(lambda: context.feed.is_current)
        await published(log, version(NAME, 1))
        await until(lambda: bool(context.feed._recent))
        await labelled(log, NAME, "beta", 1)
        await until(lambda: bool(stream.of("label")))
        assert numbers(stream) == []
        log.may_come.set()
        await reading
        assert (await client.get(f"/v1/playbooks/{NAME}")).json()["version"] == 1

    assert numbers(stream) == [1]


@pytest.mark.parametrize("last", ["2@", "2"], ids=["an id of ours", "a version"])
async def test_a_client_that_comes_back_gets_what_it_missed_even_from_before_the_gateway(last: str) -> None:
    log = MemoryLog(SystemClock())
    await published(log, *(version(NAME, number) for number in range(1, 11)))
    async with served(log) as (address, context), httpx.AsyncClient(base_url=address) as client:
        if last.endswith("@"):
            last += str((await context.history.places(NAME))[2])
        stream = Stream(EVENTS, events=[Event(id=last)])
        await published(log, version(NAME, 11))
        await stream.read(client, until=reached(11))

    assert numbers(stream) == list(range(3, 12))


async def test_a_client_that_loses_its_connection_again_and_again_misses_nothing() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        await stream.read(client, until=reached(1))
        for number in range(2, 30):
            await published(log, version(NAME, number))
            if number % 3 == 0:
                count = len(stream.events)
                await stream.read(client, until=lambda events, count=count: len(events) > count)  # type: ignore[misc]
        await stream.read(client, until=reached(29))

    assert numbers(stream) == list(range(1, 30))


async def test_what_has_left_the_feeds_memory_is_read_from_history() -> None:
    log = MemoryLog(SystemClock(), partitions=1)
    feed = Feed(log, History(log), kept=3)
    following = asyncio.create_task(feed.run())
    await feed.wait_current(5)
    for number in range(1, 21):
        await published(log, version(NAME, number), version("other", number))
    await until(lambda: len(feed._recent) == 3 and topics.HISTORY.read(feed._recent[-1]).version == 20)

    found = [one async for one in feed.after(NAME, -1)]
    assert [one.version for one in found] == list(range(1, 21))
    later = [one.version async for one in feed.after(NAME, found[9].history_offset)]
    assert later == list(range(11, 21))
    assert feed._bytes < 20_000
    following.cancel()


async def test_a_version_is_decoded_once_for_all_streams_and_not_at_all_without_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []

    def counted(record: Record) -> Playbook | None:
        decoded.append(record.offset)
        return placed(record)

    monkeypatch.setattr(feeding, "placed", counted)
    log = MemoryLog(SystemClock(), partitions=1)
    feed = Feed(log, History(log))
    following = asyncio.create_task(feed.run())
    await feed.wait_current(5)
    await published(log, *(version(NAME, number) for number in range(1, 6)))
    await until(lambda: len(feed._recent) == 5)
    assert decoded == []
    places = [record.offset for record in feed._recent]
    for _ in range(3):
        assert [one.version async for one in feed.after(NAME, places[2])] == [4, 5]
    assert decoded == places[3:]
    following.cancel()


async def test_a_version_of_a_newer_writer_ends_its_streams_and_not_the_gateway() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1), version("other", 1))
    async with served(log) as (address, context), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=reached(2)))
        await until(lambda: bool(stream.events))
        await log.produce(Outgoing(topic=topics.HISTORY.name, key=NAME.encode(), value=newer(Playbook)))
        await reading
        assert numbers(stream) == [1]
        assert (await client.get(f"/v1/playbooks/{NAME}")).json()["version"] == 1
        assert not context.feed._decoded


async def test_a_slow_client_costs_no_memory_and_is_dropped() -> None:
    log = MemoryLog(SystemClock())
    big = "x" * 200_000
    settings = {"send_timeout_s": 0.3, "heartbeat_s": 0.2}
    async with served(log, **settings) as (address, _), httpx.AsyncClient(base_url=address) as client:
        host, port = urlsplit(address).hostname or "", urlsplit(address).port or 0
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, port))
            slow.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await asyncio.to_thread(slow.recv, 12)  # it is answered, and reads no further
            stream = Stream(EVENTS)
            for number in range(1, 60):
                await published(log, version(NAME, number, big))
            await stream.read(client, until=reached(59))
            assert await _open_streams(client) == 0

    assert numbers(stream)[-1] == 59


async def test_of_an_event_that_is_not_read_a_stream_keeps_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key may have a thousand streams."""
    kept: list[int] = []
    pausing = Guarded.pause_writing

    def bind(*args: Any) -> socket.socket:
        bound = process_server.bind(*args)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # as on a slow network
        return bound

    def pause_writing(protocol: Guarded) -> None:
        kept.append(protocol.transport.get_write_buffer_size())
        pausing(protocol)

    monkeypatch.setattr("combee.gateway.server.bind", bind)
    monkeypatch.setattr(Guarded, "pause_writing", pause_writing)
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1, "x" * 600_000))
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((client.base_url.host, client.base_url.port or 0))
            slow.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            await until(lambda: bool(kept))
        stream = Stream(EVENTS)
        await stream.read(client, until=reached(1))
    assert numbers(stream) == [1]
    assert max(kept) < 3 * PART_BYTES


async def test_no_heartbeat_is_sent_within_an_event() -> None:
    event = b"event: version\ndata: " + b"x" * 3 * PART_BYTES + b"\n\n"
    sent: list[bytes] = []
    is_read, is_second = asyncio.Event(), asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        yield event

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        if body := message.get("body"):
            sent.append(body)
            if len(sent) > 1:
                is_second.set()
            await is_read.wait()

    answering = asyncio.create_task(
        _Stream(events(), ping=0.01)({"type": "http", "method": "GET"}, receive, send)
    )
    with pytest.raises(TimeoutError):  # heartbeats are due meanwhile
        await asyncio.wait_for(is_second.wait(), 0.2)
    is_read.set()
    await answering
    assert b"".join(sent).startswith(event)


async def _open_streams(client: httpx.AsyncClient) -> int:
    """Return how many streams are open, once that is none, or after a while."""
    found = 1
    async with asyncio.timeout(10):
        while found:
            text = (await client.get("/metrics")).text
            found = int(float(text.split("\ncombee_streams_open ")[1].split()[0]))
    return found


async def test_there_is_a_sign_of_life_where_nothing_happens() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1))
    async with (
        served(log, heartbeat_s=0.05) as (address, _),
        httpx.AsyncClient(base_url=address) as client,
    ):
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=reached(2)))
        await until(lambda: stream.comments >= 2)
        await published(log, version(NAME, 2))
        await reading


async def test_streams_are_bounded() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1))
    async with served(log, streams=1) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=reached(2)))
        await until(lambda: bool(stream.events))
        refused = await client.get(EVENTS)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        await published(log, version(NAME, 2))
        await reading
        assert await _open_streams(client) == 0
        await Stream(EVENTS).read(client, until=reached(2))


async def test_labels_and_a_deletion_are_told() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1), version(NAME, 2))
    await labelled(log, NAME, "production", 1)
    async with served(log) as (address, _), httpx.AsyncClient(base_url=address) as client:
        stream = Stream(EVENTS)
        reading = asyncio.create_task(stream.read(client, until=lambda events: events[-1].kind == "deleted"))
        await until(lambda: len(stream.events) == 2)
        await labelled(log, NAME, "production", 2)
        await until(lambda: len(stream.events) == 3)
        await published(log, version(NAME, 3, origin="delete", entries=()))
        await reading

    moves = [json.loads(one.data) for one in stream.of("label")]
    assert [(one["label"], one["version"]) for one in moves] == [("production", 1), ("production", 2)]
    assert json.loads(stream.events[-1].data) == {"name": NAME, "version": 3}


async def test_streams_end_when_the_gateway_stops() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version(NAME, 1))
    stream = Stream(EVENTS)
    async with httpx.AsyncClient() as client:
        async with served(log) as (address, _):
            stream.url = address + EVENTS
            reading = asyncio.create_task(stream.read(client, until=reached(99)))
            await until(lambda: bool(stream.events))
        async with asyncio.timeout(5):
            await reading
