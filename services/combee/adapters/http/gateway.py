"""A deployment behind its gateway: messages out by POST, playbooks in by server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from itertools import zip_longest
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from combee.adapters.http.errors import check, translated
from combee.adapters.http.events import MAX_EVENT, Event, events
from combee.adapters.ports import CombeeError, FatalError, PoisonError, TransientError
from combee_schemas.base import Value
from combee_schemas.canary import CanaryTerms
from combee_schemas.gate import Judge
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import CANDIDATE, LATEST, PRODUCTION, Label, Playbook, label_key
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TraceContext

TIMEOUT_S = 15.0
SILENCE_S = 60.0
"""Seconds without any event or keep-alive after which a stream is reopened."""
RETRY_S, LONGEST_RETRY_S = 0.5, 10.0
MAX_AT_ONCE = 100
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LONGEST_WAIT_S = 30.0
"""Maximum seconds of one wait, even if Retry-After asks for more."""

Sent = Trace | Reflection | Outcome
MESSAGES: TypeAdapter[list[Trace] | list[Reflection] | list[Outcome]] = TypeAdapter(
    list[Trace] | list[Reflection] | list[Outcome]
)
PATHS: tuple[tuple[str, type[Sent]], ...] = (
    ("/v1/traces", Trace),
    ("/v1/reflections", Reflection),
    ("/v1/outcomes", Outcome),
)


class Sink(Protocol):
    """The receiver of playbooks and labels."""

    @property
    def take(self) -> Callable[[str, Playbook | Label | None], None]:
        """Take a playbook or label by its key."""

    @property
    def current(self) -> Callable[[str | None], None]:
        """Record that everything present of a playbook was delivered."""


class _Listed(Value):
    name: str
    labels: dict[str, int] = Field(default_factory=dict)
    gate: tuple[Judge, ...] = ()


class _Page(Value):
    playbooks: tuple[_Listed, ...]


class _Receipt(Value):
    """The counts of a receipt that says that Kafka has acknowledged all messages of a request."""

    accepted: int = 0
    repeated: int = 0


class _EventData(Value):
    """The data of any event."""

    name: str
    label: str = ""
    version: int = 0
    gate: tuple[Judge, ...] = ()
    canary: CanaryTerms | None = None
    playbook: Playbook | None = None


EVERYTHING = {"state": "all"}
"""Proposed entries, too: the SDK shows them on request."""
EVENT_STREAM = "text/event-stream"
PLAIN = {"Accept-Encoding": "identity"}
"""No compression: a compressed body could grow beyond bounds before it is counted."""
NEWEST = {"label": LATEST}
"""The newest version, judged or not: the agent's labels decide which version it reads, as on Kafka."""


def client_options(url: str, api_key: str | None, http: httpx.AsyncBaseTransport | None) -> dict[str, Any]:
    """Return the arguments of httpx's client for a gateway."""
    return {
        "base_url": url.rstrip("/"),
        "headers": PLAIN | ({"Authorization": f"Bearer {api_key}"} if api_key else {}),
        "event_hooks": {"response": [_bound]},
        "timeout": TIMEOUT_S,
        "transport": http,
        # A proxy for the world cannot reach this machine.
        "trust_env": urlsplit(url).hostname not in LOOPBACK,
    }


async def _bound(response: httpx.Response) -> None:
    """Bound the body of an answer; a stream's events are bounded one by one."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, which nobody asked for")
    if response.request.headers.get("accept") != EVENT_STREAM and isinstance(
        response.stream, httpx.AsyncByteStream
    ):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx.AsyncByteStream):
    """A body that is an error as soon as it is too long."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_EVENT
        async for chunk in self._body:
            left -= len(chunk)
            if left < 0:
                raise httpx.ReadError(f"the answer is longer than {MAX_EVENT} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class GatewayTransport:
    """See ``combee.sdk.Transport``; one event stream per requested playbook."""

    def __init__(
        self, url: str, *, api_key: str | None = None, http: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._options = client_options(url, api_key, http)
        self._client: httpx.AsyncClient | None = None
        self._sink: Sink | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._heard_last: dict[str, str] = {}
        """By playbook: the event to resume from."""
        self._failed: asyncio.Queue[CombeeError] = asyncio.Queue()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            with translated("connecting"):
                self._client = httpx.AsyncClient(**self._options)
        return self._client

    # ---- out

    async def send(self, messages: Sequence[Sent], contexts: Sequence[TraceContext | None] = ()) -> None:
        """The gateway answers when Kafka has acknowledged. All messages of a request share one span."""
        of_spans: dict[TraceContext | None, list[Sent]] = {}
        for message, context in zip_longest(messages, contexts):
            of_spans.setdefault(context, []).append(message)
        for path, kind in PATHS:
            for context, group in of_spans.items():
                chosen = [message for message in group if isinstance(message, kind)]
                for start in range(0, len(chosen), MAX_AT_ONCE):
                    await self._post(path, chosen[start : start + MAX_AT_ONCE], context)

    async def _post(self, path: str, batch: Sequence[Sent], context: TraceContext | None) -> None:
        body = MESSAGES.dump_json(list(batch), exclude_defaults=True)  # type: ignore[arg-type]  # of one kind
        with translated(f"POST {path}"):
            headers = [("Content-Type", b"application/json"), *(context.headers() if context else ())]
            response = await self._http.post(
                path, content=body, headers=[(n.encode(), v) for n, v in headers]
            )
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            await asyncio.sleep(_retry_after_s(response))
        if response.status_code == HTTPStatus.MULTI_STATUS and len(batch) == 1:
            raise PoisonError(f"POST {path}: the gateway refused the message")
        if response.status_code == HTTPStatus.MULTI_STATUS:
            raise PoisonError(f"POST {path}: the gateway refused some of {len(batch)} messages")
        check(response, f"POST {path}")
        if response.status_code != HTTPStatus.ACCEPTED or not _acknowledges(response.content, len(batch)):
            raise FatalError(  # a proxy's page
                f"POST {path}: {response.status_code} is no gateway's answer; check the address, messages are kept"
            )

    # ---- in

    async def follow(self, sink: Sink) -> None:
        """Open streams as playbooks are requested."""
        self._sink = sink
        for name in list(self._following):
            self._begin(name)
        raise await self._failed.get()

    async def watch(self, name: str, label: str) -> None:  # noqa: ARG002 - the stream has every label
        if name not in self._following:
            self._begin(name)

    def _begin(self, name: str) -> None:
        former = self._following.get(name)
        if former is None or former.done():
            self._following[name] = asyncio.create_task(self._for_ever(name))

    async def _for_ever(self, name: str) -> None:
        pause_s = RETRY_S
        while True:
            before = self._heard_last.get(name)
            try:
                await self._look(name)
                await self._stream(name)
            except (TransientError, FatalError, PoisonError, ValidationError) as error:
                if self._failed.empty():
                    self._failed.put_nowait(TransientError(str(error)))
            is_useful = self._heard_last.get(name) != before
            pause_s = RETRY_S if is_useful else min(2 * pause_s, LONGEST_RETRY_S)
            await asyncio.sleep(pause_s)

    async def _look(self, name: str) -> None:
        """Deliver the present state; the stream continues from there."""
        page = await self._get("/v1/playbooks", {"prefix": name, "limit": "1"})
        listed = read_answer(_Page, page.content).playbooks if page is not None else ()
        for summary in listed:
            if summary.name == name:
                for label, version in {CANDIDATE: 0, **summary.labels}.items():
                    self._take_label(name, label, version, summary.gate)
                newest = await self._fetched(name, NEWEST)
                if newest is not None:
                    self._take(name, newest)
        if self._sink is not None:
            self._sink.current(name)

    async def _stream(self, name: str) -> None:
        """Listen until the stream ends."""
        where, last_id = f"{playbook_path(name)}/events", self._heard_last.get(name)
        headers = {"Accept": EVENT_STREAM} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        with translated(f"GET {where}"):
            async with self._http.stream(
                "GET", where, params=EVERYTHING | NEWEST, headers=headers, timeout=timeout
            ) as response:
                check(response, f"GET {where}")
                async for event in events(response.aiter_text()):
                    self._heard(name, event)

    def _heard(self, name: str, event: Event) -> None:
        if event.id is not None:
            self._heard_last[name] = event.id
        news = read_answer(_EventData, event.data.encode())
        match event.kind:
            case "version" if news.playbook is not None:
                self._take(name, news.playbook)
            case "label":
                self._take_label(name, news.label, news.version, news.gate, news.canary)
            case "deleted":
                self._take(name, None)

    def _take_label(
        self,
        name: str,
        label: str,
        version: int,
        gate: tuple[Judge, ...],
        canary: CanaryTerms | None = None,
    ) -> None:
        judges = gate if label == PRODUCTION else ()
        made = Label(playbook=name, label=label, version=version, gate=judges, canary=canary)
        self._take(label_key(name, label), made if version or label == PRODUCTION else None)

    def _take(self, key: str, message: Playbook | Label | None) -> None:
        if self._sink is not None:
            self._sink.take(key, message)

    async def fetch(self, name: str, version: int) -> Playbook | None:
        return await self._fetched(name, {"version": str(version)})

    async def _fetched(self, name: str, query: dict[str, str]) -> Playbook | None:
        response = await self._get(playbook_path(name), query | EVERYTHING)
        return None if response is None else read_answer(Playbook, response.content)

    async def _get(self, path: str, query: dict[str, str]) -> httpx.Response | None:
        with translated(f"GET {path}"):
            response = await self._http.get(path, params=query)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None
        check(response, f"GET {path}")
        return response

    async def close(self) -> None:
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()


def playbook_path(name: str) -> str:
    """Return the path of a playbook."""
    return f"/v1/playbooks/{quote(name, safe='')}"


def read_answer(kind: type[Any], content: bytes) -> Any:
    """Return a gateway's answer as ``kind``; TransientError: it is something else."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise TransientError(f"the gateway's answer is not a {kind.__name__.strip('_')}") from error


def _acknowledges(content: bytes, count: int) -> bool:
    """Return whether an answer is the receipt of ``count`` messages."""
    try:
        receipt = _Receipt.model_validate_json(content)
    except ValidationError:
        return False
    return receipt.accepted + receipt.repeated == count


def _retry_after_s(response: httpx.Response) -> float:
    given = response.headers.get("retry-after", "")
    is_number = given.isascii() and given.isdigit()
    return min(float(given), LONGEST_WAIT_S) if is_number else RETRY_S
