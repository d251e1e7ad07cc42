"""``combee mcp`` with the official client, in both eras of the protocol, on stdio and HTTP."""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.subscriptions import ResourceUpdated

from combee.adapters.ports import CombeeError, FatalError, TransientError
from combee.integrations.mcp.server import _News
from combee.integrations.mcp.serving import check_open
from support import framing

COMBEE = str(Path(sys.executable).parent / "combee")
EXAMPLES = Path(__file__).parents[3] / "examples"
NAME = "support/refunds"
URI = f"combee://playbooks/{NAME}"
ERAS = ("legacy", "auto")
"""The handshake of until 2025-11-25, and what client and server agree on, which is 2026-07-28."""
READY_S = 60.0
TOLD_S = 60.0
READER, WRITER, BOTH, ELSEWHERE = ("reader" * 4, "writer" * 4, "both" * 6, "elsewhere" * 3)


def key(name: str, given: str, *scopes: str, namespace: str = "support/") -> dict[str, Any]:
    digest = hashlib.sha256(given.encode()).hexdigest()
    return {"name": name, "hash": f"sha256:{digest}", "scopes": scopes, "namespaces": [namespace]}


KEYS = (
    key("reader", READER, "playbooks:read"),
    key("writer", WRITER, "reflections:write"),
    key("both", BOTH, "playbooks:read", "reflections:write"),
    key("elsewhere", ELSEWHERE, "playbooks:read", "reflections:write", namespace="sales/"),
)


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COMBEE_")}  # noqa: TID251
    return {**inherited, **more}


# ---- processes


@contextmanager
def process(*command: str, said: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command until the test ends; yields it, and what it said on standard error where it was ready."""
    started = subprocess.Popen(
        command, env=environment(**env), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert started.stderr
    rest = threading.Thread(target=started.stderr.read, daemon=True)  # a full pipe would stop the process
    try:
        match, lines = None, list[str]()
        for line in started.stderr:
            lines.append(line)
            if (match := re.search(said, line)) is not None:
                break
        assert match is not None, f"{command} ended with {started.wait()}:\n{''.join(lines)}"
        rest.start()
        yield started, match[1]
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(30)
        if rest.is_alive():
            rest.join(30)
        started.stderr.close()


@pytest.fixture(scope="module")
def learned(deployment: Any) -> Any:
    """A deployment whose playbook has a first version."""
    body = [
        {"playbook": NAME, "reflection_id": f"first-{n}", "key_insight": text}
        for n, text in enumerate(
            ("Ask a manager above 100.", "Check the date of purchase.", "Be exact.", "Be kind.")
        )
    ]
    httpx.post(f"{deployment.http}/v1/reflections", json=body).raise_for_status()
    with httpx.stream("GET", f"{deployment.http}/v1/playbooks/{NAME}/events", timeout=TOLD_S) as events:
        assert "event: version" in events.iter_lines()
    return deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A gateway with keys, and ``combee mcp --http`` before it."""

    gateway: str
    url: str
    keys: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def guarded(learned: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("keys")
    keys, ready = folder / "keys.json", folder / "ready"
    keys.write_text(json.dumps(KEYS))
    keys.chmod(0o600)
    settings = {
        "COMBEE_BOOTSTRAP_SERVERS": learned.kafka,
        "COMBEE_GATEWAY_KEYS_FILE": str(keys),
        "COMBEE_GATEWAY_PORT": "0",
        "COMBEE_DATA_DIR": str(folder),
        "COMBEE_READY_FILE": str(ready),
    }
    with (
        process(
            learned.command, "worker", "gateway", said=r"serving.*address\W+(http://[0-9.:]+)", **settings
        ) as (_, at),
        process(COMBEE, "mcp", "--http", "--port", "0", "--gateway", at, said=r"serving (\S+)") as (mcp, url),
    ):
        yield Guarded(gateway=at, url=url, keys=keys, process=mcp)


# ---- clients


@asynccontextmanager
async def on_stdio(learned: Any, mode: str, **options: Any) -> AsyncIterator[Client]:
    server = StdioServerParameters(command=COMBEE, args=["mcp", "--gateway", learned.http], env=environment())
    async with Client(server, mode=mode, read_timeout_seconds=READY_S, **options) as client:
        yield client


@asynccontextmanager
async def on_kafka(learned: Any, mode: str, **options: Any) -> AsyncIterator[Client]:
    args = ["mcp", "--bootstrap-servers", learned.kafka]
    server = StdioServerParameters(command=COMBEE, args=args, env=environment())
    async with Client(server, mode=mode, read_timeout_seconds=READY_S, **options) as client:
        yield client


@asynccontextmanager
async def on_http(
    guarded: Guarded, mode: str, given: str | None = BOTH, **options: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=READY_S))
        transport = streamable_http_client(guarded.url, http_client=http)
        yield await stack.enter_async_context(
            Client(transport, mode=mode, read_timeout_seconds=READY_S, **options)
        )


def text(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return str(content.text)


async def call(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert "Traceback" not in text(result)
    return text(result)


# ---- tools and resources

CONNECTIONS: Mapping[str, Callable[..., Any]] = {"stdio": on_stdio, "kafka": on_kafka, "http": on_http}


@pytest.fixture(params=CONNECTIONS)
def connect(request: pytest.FixtureRequest, learned: Any, guarded: Guarded) -> Callable[..., Any]:
    """Return what connects the official client: by a gateway's address, by Kafka's, or on HTTP with a key."""
    where = guarded if request.param == "http" else learned
    return lambda mode, **options: CONNECTIONS[request.param](where, mode, **options)


@pytest.mark.parametrize("mode", ERAS)
async def test_every_tool_answers_playbooks_are_resources_and_errors_say_what_helps(
    connect: Callable[..., Any], mode: str
) -> None:
    # On one connection: each starts a server, whose imports take longer than all that is asked of it.
    async with connect(mode) as client:
        await every_tool_answers(client, mode)
        await playbooks_are_resources(client)
        await errors_are_the_tools_answers_with_what_helps(client)


async def every_tool_answers(client: Client, mode: str) -> None:
    assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == [
        *("playbook", "search_entries", "publish_reflection", "report_outcome", "why"),
    ]
    assert [tool.name for tool in tools if not (tool.annotations and tool.annotations.read_only_hint)] == [
        "publish_reflection",
        "report_outcome",
    ]
    assert "Combee keeps playbooks" in (client.instructions or "")
    read = await call(client, "playbook", playbook=NAME)
    assert read.startswith(f"{NAME}, version ")
    assert "<playbook " in read
    entry = re.search(r"^\[(\S+)\] ", read, re.MULTILINE)
    assert entry is not None
    assert f"{NAME} [" in await call(client, "search_entries", query="manager date kind exact")
    assert "reflection " in await call(client, "why", playbook=NAME, entry=entry[1])
    outcome = {"playbook": NAME, "run_id": "run-1", "success": True, "version": 1}
    assert "counts for support/refunds version 1" in await call(client, "report_outcome", **outcome)
    assert "accepted as r-" in await call(
        client, "publish_reflection", playbook="support/other", key_insight=f"Lesson of {mode}."
    )


async def playbooks_are_resources(client: Client) -> None:
    listed = (await client.list_resources()).resources
    assert URI in [resource.uri for resource in listed]
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == ["combee://playbooks/{+name}"]
    (page,) = (await client.read_resource(URI)).contents
    assert isinstance(page, types.TextResourceContents)
    assert page.mime_type == "text/markdown"
    assert f"# {NAME}\n" in page.text
    assert client.server_capabilities.resources is not None
    assert client.server_capabilities.resources.subscribe
    for uri in ("combee://playbooks/support/none", "file:///etc/passwd", "combee://playbooks/../x"):
        with pytest.raises(MCPError, match="no playbook"):
            await client.read_resource(uri)


async def errors_are_the_tools_answers_with_what_helps(client: Client) -> None:
    assert "no playbook support/none" in await refused(client, "playbook", playbook="support/none")
    assert "playbook: String should match pattern" in await refused(client, "playbook", playbook="../x")
    assert "nope: Extra inputs" in await refused(client, "playbook", playbook=NAME, nope=1)
    assert "query: Field required" in await refused(client, "search_entries")
    assert "entry nope" in await refused(client, "why", playbook=NAME, entry="nope")
    assert "there is no tool nope; there are: playbook," in await refused(client, "nope")
    assert "the lesson is empty" in await refused(client, "publish_reflection", playbook=NAME, key_insight="")


# ---- subscriptions


async def lessons(client: Client, marker: str) -> None:
    """Publish what fills a window."""
    for number in range(4):
        await call(client, "publish_reflection", playbook=NAME, key_insight=f"Lesson {number} of {marker}.")


async def test_a_client_of_2026_is_told_on_its_stream(connect: Callable[..., Any], request: Any) -> None:
    async with connect("auto") as client, client.listen(resource_subscriptions=[URI]) as news:
        before = await call(client, "playbook", playbook=NAME)
        await lessons(client, request.node.name)
        async with asyncio.timeout(TOLD_S):
            event = await anext(news)
        assert getattr(event, "uri", None) == URI
        assert await call(client, "playbook", playbook=NAME) != before


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_a_client_of_2025_is_told_on_its_connection(connect: Callable[..., Any], request: Any) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.put_nowait(str(message.params.uri))

    async with connect("legacy", message_handler=hear) as client:
        await client.subscribe_resource(URI)
        await client.subscribe_resource(URI)
        before = await call(client, "playbook", playbook=NAME)
        await lessons(client, request.node.name)
        async with asyncio.timeout(TOLD_S):
            assert await told.get() == URI
        assert await call(client, "playbook", playbook=NAME) != before
        await client.unsubscribe_resource(URI)


def open_streams(gateway: str) -> float:
    metrics = httpx.get(f"{gateway}/metrics").text
    return float(re.findall(r"^combee_streams_open (\S+)", metrics, re.MULTILINE)[0])


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_when_a_client_is_gone_nothing_is_followed_for_it(learned: Any) -> None:
    with process(
        COMBEE, "mcp", "--http", "--port", "0", "--gateway", learned.http, said=r"serving (\S+)"
    ) as (_, url):
        async with Client(url, mode="legacy") as first, Client(url) as second:
            await first.subscribe_resource(URI)
            async with second.listen(resource_subscriptions=[URI]):
                await until(lambda: open_streams(learned.http) == 1)
            assert open_streams(learned.http) == 1
        await until(lambda: open_streams(learned.http) == 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(READY_S):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - a gauge tells nobody
            await asyncio.sleep(0.05)


async def test_what_comes_before_a_stream_is_heard_is_kept_for_it() -> None:
    news, heard = _News(), list[Any]()
    await news.publish(ResourceUpdated(uri=URI))
    news.subscribe(heard.append)
    await news.publish(ResourceUpdated(uri=f"{URI}@b"))
    assert [event.uri for event in heard] == [URI, f"{URI}@b"]


# ---- keys


@pytest.mark.parametrize("mode", ERAS)
async def test_a_key_has_the_rights_that_it_has_on_the_gateway(guarded: Guarded, mode: str) -> None:
    async with on_http(guarded, mode, READER) as reader:
        assert "version" in await call(reader, "playbook", playbook=NAME)
        assert "lacks the scope reflections:write" in await refused(
            reader, "publish_reflection", playbook=NAME, key_insight="x"
        )
    async with on_http(guarded, mode, WRITER) as writer:
        assert "lacks the scope playbooks:read" in await refused(writer, "playbook", playbook=NAME)
        with pytest.raises(MCPError, match="lacks the scope playbooks:read"):
            await writer.read_resource(URI)
    async with on_http(guarded, mode, ELSEWHERE) as stranger:
        assert "name spaces do not include" in await refused(stranger, "playbook", playbook=NAME)
        assert (await stranger.list_resources()).resources == []


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_who_may_not_read_a_playbook_may_not_watch_it(guarded: Guarded) -> None:
    async with on_http(guarded, "legacy", ELSEWHERE) as stranger:
        with pytest.raises(MCPError, match="name spaces do not include"):
            await stranger.subscribe_resource(URI)
    async with on_http(guarded, "auto", ELSEWHERE) as stranger:
        with pytest.raises(MCPError, match="name spaces do not include"):
            async with stranger.listen(resource_subscriptions=[URI]):
                pass


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def posted(guarded: Guarded, body: Any, **headers: str) -> httpx.Response:
    sent = httpx.Headers({**ACCEPT, **headers}, encoding="utf-8")
    return httpx.post(guarded.url, json=body, headers=sent)


def test_without_a_known_key_nobody_comes_in(guarded: Guarded) -> None:
    for given in ("", "Bearer wrong", "Bearer schlüssel", f"Basic {BOTH}"):
        headers = {"Authorization": given} if given else {}
        answer = posted(guarded, INITIALIZE, **headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="combee"')
        assert "send a key of the gateway" in answer.text


def test_a_session_belongs_to_the_key_that_opened_it(guarded: Guarded) -> None:
    opened = posted(guarded, INITIALIZE, Authorization=f"Bearer {BOTH}")
    assert opened.status_code == 200
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert posted(guarded, ping, Authorization=f"Bearer {READER}", **session).status_code == 404
    assert posted(guarded, ping, Authorization=f"Bearer {BOTH}", **session).status_code == 200


def test_a_page_that_points_its_own_name_here_is_refused(guarded: Guarded) -> None:
    mine = {"Authorization": f"Bearer {BOTH}"}
    assert posted(guarded, INITIALIZE, Host="evil.example", **mine).status_code == 421
    assert posted(guarded, INITIALIZE, Origin="http://evil.example", **mine).status_code == 403
    assert posted(guarded, INITIALIZE, Origin="http://localhost:1234", **mine).status_code == 200


def test_a_key_that_is_taken_away_opens_nothing_any_more(guarded: Guarded) -> None:
    new = guarded.keys.with_suffix(".new")
    temporary = "temporary" * 3
    new.write_text(json.dumps([*KEYS, key("temporary", temporary, "playbooks:read")]))
    new.chmod(0o600)
    new.replace(guarded.keys)
    mine = {"Authorization": f"Bearer {temporary}"}
    assert posted(guarded, INITIALIZE, **mine).status_code == 200
    new.write_text(json.dumps(KEYS))
    new.chmod(0o600)
    new.replace(guarded.keys)
    assert posted(guarded, INITIALIZE, **mine).status_code == 401


# ---- the process


def run(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (COMBEE, "mcp", *arguments),
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )


def test_standard_output_has_the_protocol_alone(learned: Any) -> None:
    calls = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "playbook", "arguments": {"playbook": "a/b"}},
        },
        {"jsonrpc": "2.0", "id": 3, "method": "nonsense"},
    ]
    lines = "".join(f"{json.dumps(each)}\n" for each in calls)
    # Input ends at once: what is under way may be dropped, what is answered is JSON-RPC.
    ended = run("--gateway", learned.http, stdin=f"{lines}no JSON\n")
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, ended.stderr
    assert answers[0]["result"]["serverInfo"]["name"] == "combee"
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert "Traceback" not in ended.stderr


def test_ctrl_c_ends_it_at_once_though_its_input_is_open(learned: Any) -> None:
    with subprocess.Popen(
        (COMBEE, "mcp", "--gateway", learned.http),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"{json.dumps(INITIALIZE)}\n")
        server.stdin.flush()
        assert "serverInfo" in server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(READY_S) == -signal.SIGINT


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (HTTPStatus.OK, FatalError),
        (HTTPStatus.FORBIDDEN, FatalError),  # who has no key may write, though not read
        (HTTPStatus.SERVICE_UNAVAILABLE, TransientError),  # it has just started
        (HTTPStatus.TOO_MANY_REQUESTS, TransientError),
    ],
)
def test_other_machines_are_served_only_if_the_gateway_refuses_who_has_no_key(
    status: HTTPStatus, error: type[CombeeError]
) -> None:
    with pytest.raises(error, match="keys"):
        check_open("0.0.0.0", "http://127.0.0.1:8750", status)  # noqa: S104 - it is refused
    check_open("127.0.0.1", "http://127.0.0.1:8750", status)
    check_open("0.0.0.0", "http://127.0.0.1:8750", HTTPStatus.UNAUTHORIZED)  # noqa: S104 - it has keys


def test_what_cannot_be_served_is_said_with_the_remedy(learned: Any) -> None:
    ended = run("--http", "--bootstrap-servers", learned.kafka)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "each caller brings a key of the gateway" in ended.stderr
    ended = run("--http", "--host", "0.0.0.0", "--gateway", learned.http)  # noqa: S104 - it is refused
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "needs no keys" in ended.stderr
    ended = run("--http", "--gateway", "http://127.0.0.1:1")
    assert ended.returncode == 1
    assert "ConnectError" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_gateway_that_is_away_is_a_tools_answer() -> None:
    args = ["mcp", "--gateway", "http://127.0.0.1:1"]
    async with Client(StdioServerParameters(command=COMBEE, args=args, env=environment())) as client:
        assert "ConnectError" in await refused(client, "playbook", playbook=NAME)


async def test_a_gateway_without_keys_is_served_on_loopback_and_a_signal_ends_it_well(learned: Any) -> None:
    with process(
        COMBEE, "mcp", "--http", "--port", "0", "--gateway", learned.http, said=r"serving (\S+)"
    ) as (
        server,
        url,
    ):
        async with Client(url) as client, client.listen(resource_subscriptions=[URI]) as news:
            assert "version" in await call(client, "playbook", playbook=NAME)
            server.send_signal(signal.SIGTERM)
            async with asyncio.timeout(READY_S):
                assert [event async for event in news] == []
        assert server.wait(READY_S) == 0


def test_the_example_runs(learned: Any) -> None:
    env: Mapping[str, str] = environment(PATH=f"{Path(COMBEE).parent}:{os.environ['PATH']}")  # noqa: TID251
    ended = subprocess.run(
        (sys.executable, str(EXAMPLES / "mcp_assistant.py"), learned.http),
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "accepted as r-" in ended.stdout
    assert "told: ResourceUpdated" in ended.stdout
    assert "manager" in ended.stdout


# ---- requests whose length can be read in two ways

HEADERS = (
    f"Authorization: Bearer {BOTH}",
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
)
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
).encode()
LAST = f"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n{HEADERS[0]}\r\nConnection: close\r\n\r\n".encode()


async def test_on_http_a_request_of_two_lengths_is_answered_once_with_400_and_the_connection_closed(
    guarded: Guarded,
) -> None:
    requests = framing.ambiguous("/mcp", *HEADERS, body=HELLO)
    answers = {why: await framing.statuses(guarded.url, sent + LAST) for why, sent in requests.items()}
    assert answers == {why: [b"400"] for why in requests}


async def test_on_http_a_request_of_one_length_keeps_its_connection(guarded: Guarded) -> None:
    whole = framing.request("/mcp", *HEADERS, f"Content-Length: {len(HELLO)}", body=HELLO)
    chunks = framing.request("/mcp", *HEADERS, "Transfer-Encoding: chunked", body=framing.chunked(HELLO))
    assert [await framing.statuses(guarded.url, sent + LAST) for sent in (whole, chunks)] == [
        [b"200", b"404"]
    ] * 2
