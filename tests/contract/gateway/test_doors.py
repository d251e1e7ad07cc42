"""What strangers and greedy clients may cost the gateway, on a real server; nobody else is kept waiting."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.gateway import server
from combee.gateway.access import access
from combee.gateway.access.connections import Connections, Guarded
from combee.gateway.access.throttle import WrongKeyThrottle, network
from combee.gateway.app import build
from combee.gateway.context import Context
from support.gateway import CONFIGURED, KEYS, READER, WRITER, bearer, published, served, version
from support.waiting import until

OTHER = "o" * 24
TWO_READERS = json.dumps([*KEYS, {"name": "others", "key": OTHER, "scopes": ["playbooks:read"]}])
PATH = "/v1/playbooks/support/refunds"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def doors(**settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Context]]:
    log = MemoryLog(SystemClock())
    await published(log, version("support/refunds", 1))
    async with (
        served(log, **{**CONFIGURED, **settings}) as (address, context),
        httpx.AsyncClient(base_url=address, timeout=20) as client,
    ):
        yield client, context


@asynccontextmanager
async def sockets(client: httpx.AsyncClient, count: int, said: bytes = b"") -> AsyncIterator[list[Pair]]:
    """Yield open connections, each of which has sent this."""
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(count):
            pair = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            stack.callback(pair[1].close)
            pair[1].write(said)
            pairs.append(pair)
        yield pairs


@asynccontextmanager
async def unread(client: httpx.AsyncClient, count: int) -> AsyncIterator[None]:
    """Ask without a key, on several connections, for more than their buffers hold, and read nothing."""
    asked = request("GET", "/openapi.json", "") * 40
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(0)
            await asyncio.get_running_loop().sock_connect(one, (client.base_url.host, client.base_url.port))
            one.send(asked)
        yield


def closed(lines: Sequence[Mapping[str, Any]], reason: str) -> int:
    """Return how many connections the log says were closed for a reason."""
    return sum(line["reasons"].get(reason, 0) for line in lines if line["event"] == "connections_closed")


async def ended(reader: asyncio.StreamReader, within_s: float = 10.0) -> bytes:
    """Return what came before the server closed the connection."""
    try:
        return await asyncio.wait_for(reader.read(), within_s)
    except ConnectionResetError:
        return b""


def request(method: str, path: str, key: str, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}", *lines, "", ""]
    ).encode()


# ---- heads


async def test_a_head_that_is_too_large_is_not_read_to_its_end() -> None:
    async with doors(max_head_bytes=4096) as (client, _):
        async with sockets(client, 1, b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n") as [
            (reader, writer)
        ]:
            sent = 0
            try:
                async with asyncio.timeout(10):
                    while sent < 64 << 20:
                        writer.write(b"X-Filler: " + b"x" * 65_000 + b"\r\n")
                        await writer.drain()
                        sent += 65_000
                        await asyncio.sleep(0)
            except ConnectionError:
                pass
            await ended(reader)
        assert sent < 16 << 20  # what the sockets' buffers took

        trailers = request("POST", "/v1/reflections", WRITER, Transfer_Encoding="chunked") + b"0\r\n"
        async with sockets(client, 1, trailers + b"X: " + b"x" * 10_000) as [(reader, _)]:
            assert b"400 Bad Request" in await ended(reader)
        many = {f"x-{at}": "y" * 1000 for at in range(3)}
        assert (await client.get(PATH, headers=bearer(READER) | many)).status_code == 200


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HTTP/1.1\r\nHo",
        request("GET", PATH, "x" * 20)[:-2],
        # The body of what was refused does not keep the connection either.
        request("POST", "/v1/reflections", "x" * 20, Content_Length="1000") + b"{",
    ],
)
async def test_half_sent_requests_are_closed_at_their_deadline(half: bytes) -> None:
    async with doors(head_timeout_s=0.4) as (client, _), sockets(client, 20, half) as pairs:
        for _, writer in pairs:
            writer.write(half[-1:] if half.endswith(b"o") else b"")  # a byte more is no new deadline
        await asyncio.gather(*(ended(reader) for reader, _ in pairs))
        assert (await client.get(PATH, headers=bearer(READER))).status_code == 200


async def test_a_slow_body_is_ended_with_408() -> None:
    async with doors(body_timeout_s=0.2) as (client, _):
        slow = request(
            "POST", "/v1/reflections", WRITER, Content_Length="100", Content_Type="application/json"
        )
        async with sockets(client, 1, slow + b"{") as [(reader, _)]:
            assert b"408 Request Timeout" in await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)


# ---- connections


async def test_connections_without_a_key_are_limited_and_who_has_a_key_gets_in() -> None:
    few = {"unknown_per_address": 8, "unknown_connections": 16}
    async with doors(**few) as (client, _), sockets(client, 60) as pairs:
        waiting = [asyncio.ensure_future(ended(reader)) for reader, _ in pairs]
        answers = [(await client.get(PATH, headers=bearer(READER))).status_code for _ in range(20)]
        await until(lambda: sum(one.done() for one in waiting) >= 52)
        # The newest stayed: those who come later are not shut out by those who came before.
        assert not any(one.done() for one in waiting[-7:])
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    assert answers == [200] * 20


async def test_a_proxys_connections_are_not_one_address() -> None:
    few: dict[str, Any] = {"unknown_per_address": 2, "unknown_connections": 15}
    async with doors(**few, gateway_proxies="127.0.0.1") as (client, _), sockets(client, 20) as pairs:
        waiting = [asyncio.ensure_future(ended(reader)) for reader, _ in pairs]
        await until(lambda: sum(one.done() for one in waiting) >= 5)
        assert sum(one.done() for one in waiting) == 5  # those that are too many in all
        assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_herd_of_clients_with_keys_that_comes_at_once_is_let_in() -> None:
    async with doors(unknown_per_address=5) as (client, _):
        stream = request("GET", f"{PATH}/events", READER)
        async with sockets(client, 60, stream) as pairs:
            heads = await asyncio.gather(*(reader.readuntil(b"\r\n") for reader, _ in pairs))
            assert {head.split()[1] for head in heads} == {b"200"}


async def test_one_keys_streams_never_cost_another_key_its_own() -> None:
    async with (
        doors(gateway_keys=TWO_READERS, streams=5) as (client, _),
        sockets(client, 5, request("GET", f"{PATH}/events", READER)) as pairs,
    ):
        for reader, _ in pairs:
            await reader.readuntil(b"event: version")
        assert (await client.get(f"{PATH}/events", headers=bearer(READER))).status_code == 429
        async with client.stream("GET", f"{PATH}/events", headers=bearer(OTHER)) as other:
            assert other.status_code == 200


async def test_one_keys_slow_bodies_never_cost_another_key_its_own() -> None:
    writers = json.dumps(
        [
            {"name": name, "key": key, "scopes": ["reflections:write"]}
            for name, key in (("a", WRITER), ("b", OTHER))
        ]
    )
    slow = request("POST", "/v1/reflections", WRITER, Content_Length="1000", Content_Type="application/json")
    limits = {"inflight_requests": 4, "inflight_bytes": 4000, "gateway_keys": writers}
    async with doors(**limits) as (client, _), sockets(client, 4, slow + b"{"):
        body = {"playbook": "a", "key_insight": "x"}

        async def posted(key: str) -> int:
            return (await client.post("/v1/reflections", json=body, headers=bearer(key))).status_code

        async with asyncio.timeout(10):
            while await posted(WRITER) != 429:  # noqa: ASYNC110 - another's request tells nobody
                await asyncio.sleep(0.01)
        assert await posted(OTHER) == 202


async def test_one_key_has_so_many_connections_and_others_have_theirs() -> None:
    async with doors(gateway_keys=TWO_READERS, connections=3) as (client, _):
        async with sockets(client, 3, request("GET", f"{PATH}/events", READER)) as pairs:
            for reader, _ in pairs:
                await reader.readuntil(b"event: version")
            refused = await client.get(PATH, headers=bearer(READER))
            assert (refused.status_code, refused.headers["connection"]) == (429, "close")
            assert (await client.get(PATH, headers=bearer(OTHER))).status_code == 200
        async with asyncio.timeout(10):  # they are counted while they are open
            while (await client.get(PATH, headers=bearer(READER))).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_answers_that_nobody_reads_are_dropped_at_their_deadline() -> None:
    with structlog.testing.capture_logs() as lines:
        async with doors(send_timeout_s=0.3) as (client, _), unread(client, 1):
            await until(lambda: closed(lines, "an answer not read in time") == 1)


async def test_clients_without_a_key_that_read_no_answer_are_limited_like_idle_ones() -> None:
    with structlog.testing.capture_logs() as lines:
        async with doors(unknown_per_address=3) as (client, _), unread(client, 8):
            async with asyncio.timeout(20):  # each new connection closes those that are too many by then
                while closed(lines, "too many from an address") < 5:
                    answer = await client.get(PATH, headers=bearer(READER) | {"connection": "close"})
                    assert answer.status_code == 200


async def test_answers_that_nobody_reads_take_bounded_memory() -> None:
    with structlog.testing.capture_logs() as lines:
        async with doors(unread_bytes=200_000) as (client, _), unread(client, 6):
            await until(lambda: closed(lines, "too many bytes of answers not read") > 0)
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200


async def test_no_request_is_begun_before_the_answer_to_the_last_one_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait with its whole answer."""
    begun: list[str] = []
    paused: list[None] = []
    inside = Guarded.pause_writing

    def pause_writing(protocol: Guarded) -> None:
        inside(protocol)
        paused.append(None)

    monkeypatch.setattr(Guarded, "pause_writing", pause_writing)

    def application(context: Context) -> Any:
        app = build(context)

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                begun.append(scope["path"])
            await app(scope, receive, send)

        return counted

    log = MemoryLog(SystemClock())
    await published(log, version("support/refunds", 1))
    with structlog.testing.capture_logs() as lines:
        async with (
            served(log, application, **CONFIGURED) as (address, _),
            httpx.AsyncClient(base_url=address, timeout=20) as client,
            unread(client, 1),
        ):
            await until(lambda: bool(paused))
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            answered = [line["path"] for line in lines if line["event"] == "request"]
            assert answered.count("/openapi.json") == begun.count("/openapi.json") < 40


async def test_requests_behind_an_answer_that_is_read_late_are_answered() -> None:
    async with doors() as (client, _), sockets(client, 1, request("GET", "/openapi.json", "") * 80) as [pair]:
        reader, writer = pair
        writer.write(request("GET", "/healthz", "", Connection="close"))
        await (await client.get(PATH, headers=bearer(READER))).aread()  # meanwhile its buffers fill
        assert (await ended(reader, 30)).count(b"HTTP/1.1 200 OK") == 81


async def test_refused_websockets_leave_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they are counted for ever, and each client that comes later and waits is closed."""
    upgrade = request(
        "GET",
        "/_nicegui_ws/",
        "",
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
    )
    counted: list[Connections] = []

    class Counted(Connections):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            counted.append(self)

    monkeypatch.setattr(server, "Connections", Counted)
    async with doors() as (client, _):
        async with sockets(client, 8, upgrade) as pairs:
            assert all([b"401" in await ended(reader) for reader, _ in pairs])
        await until(lambda: not len(counted[0]))


# ---- keys


async def test_wrong_keys_are_throttled_and_told_without_the_key_and_good_ones_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guess = "sk-guess-me-if-you-can"
    monkeypatch.setattr(access, "WRONG_KEY_WAITS_S", 0.2)
    with structlog.testing.capture_logs() as lines:
        async with doors(failed_keys=5) as (client, context):
            found = [await client.get(PATH, headers=bearer(f"{guess}-{at}")) for at in range(5)]
            began = context.clock.monotonic()
            found += [await client.get(PATH, headers=bearer(f"{guess}-{at}")) for at in range(5, 8)]
            assert context.clock.monotonic() - began >= 0.6
            assert [one.status_code for one in found] == [401] * 5 + [429] * 3
            assert 0 < int(found[-1].headers["retry-after"]) <= 60
            assert found[-1].headers["connection"] == "close"
            # A neighbour behind the same address does not lock out others, not even one that is new.
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            await until(lambda: sum(line.get("refused", 0) for line in lines) == 8)
    told = [line for line in lines if line["event"] == "keys_refused"]
    assert len(told) <= 5  # at most one a second
    assert told[0]["worst"].keys() == {"127.0.0.1"}
    assert guess not in str(lines)
    assert READER not in str(lines)


async def test_clients_held_for_wrong_keys_are_limited_like_all_without_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "WRONG_KEY_WAITS_S", 2.0)
    async with doors(failed_keys=1, unknown_per_address=3) as (client, _):
        assert (await client.get(PATH, headers=bearer("x" * 20))).status_code == 401
        async with sockets(client, 20, request("GET", PATH, "x" * 20)) as pairs:
            waiting = [asyncio.ensure_future(ended(reader)) for reader, _ in pairs]
            await until(lambda: sum(one.done() for one in waiting) >= 17)
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def test_wrong_keys_are_forgotten_after_a_minute_and_counted_per_network() -> None:
    throttle = WrongKeyThrottle(2)
    assert [throttle.failed("2001:db8::1", at) for at in (0.0, 10.0)] == [0, 0]
    assert throttle.failed("2001:db8::2", 20.0) == 40.0
    assert throttle.failed("2001:db8:0:1::1", 20.0) == 0
    assert throttle.failed("2001:db8::1", 60.5) == 0
    assert throttle.failed("2001:db8::1", 61.0) == 9.0
    assert network("::1") == "::1"
    assert network("fe80::1%eth0") == "fe80::/64"
    assert network("10.0.0.1") == "10.0.0.1"


def replaced(path: Path, text: str) -> None:
    """Write a file as an editor does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


async def test_a_key_that_is_removed_stops_at_once_and_its_streams_end_within_seconds(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(TWO_READERS)
    async with doors(gateway_keys=None, gateway_keys_file=path) as (client, _):
        async with (
            sockets(client, 2, request("GET", f"{PATH}/events", OTHER)) as pairs,
            sockets(client, 1, request("GET", f"{PATH}/events", READER)) as [(stays, _)],
        ):
            for reader, _ in (*pairs, (stays, None)):
                await reader.readuntil(b"event: version")
            replaced(path, json.dumps(KEYS))
            assert (await client.get(PATH, headers=bearer(OTHER))).status_code == 401
            await asyncio.gather(*(ended(reader, 5) for reader, _ in pairs))
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            assert not stays.at_eof()
        # The last key may go, too: nobody is let in then.
        replaced(path, "keys = []")
        assert (await client.get(PATH, headers=bearer(READER))).status_code == 401


async def test_a_broken_keys_file_keeps_the_old_keys_and_says_so_loudly(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(KEYS))
    with structlog.testing.capture_logs() as lines:
        async with doors(gateway_keys=None, gateway_keys_file=path) as (client, _):
            for broken, reason in (
                ("[{", "neither a JSON list"),
                ("", "it contains no key"),
                ('[{"name": "x"}]', "keys"),
            ):
                replaced(path, broken)
                assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
                errors = [line for line in lines if line["log_level"] == "error"]
                assert errors[-1]["event"] == "keys_not_read"
                assert reason in errors[-1]["error"]
            path.unlink()
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            replaced(path, json.dumps(KEYS))
            path.chmod(0o666)
            assert (await client.get(PATH, headers=bearer(READER))).status_code == 200
            assert "written by everybody" in str(lines[-2:])
            replaced(path, TWO_READERS)
            assert (await client.get(PATH, headers=bearer(OTHER))).status_code == 200
    assert len([line for line in lines if line["event"] == "keys_not_read"]) == 5
