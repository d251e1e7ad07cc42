"""A gateway's answers: what counts as an acknowledgement, how events are read, and what is too large."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import pytest

from combee.adapters.http import GatewayTransport, events, gateway
from combee.adapters.http.events import Event
from combee.adapters.ports import CombeeError, FatalError, TransientError
from combee_schemas.playbook import Label, Playbook
from combee_schemas.reflection import Reflection
from support.rows import each_row
from support.waiting import until

NAME = "support/refunds"
SAID = Reflection(reflection_id="r-1", playbook=NAME, key_insight="x")
Answer = Callable[[httpx.Request], httpx.Response]


def transport(answer: Answer) -> GatewayTransport:
    return GatewayTransport("http://gateway", http=httpx.MockTransport(answer))


async def chunks(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def heard(*texts: str) -> list[Event]:
    return [event async for event in events.events(chunks(*texts))]


@each_row(
    ("answer", "kind"),
    [
        (httpx.Response(302, headers={"location": "https://login.example/"}), FatalError),
        (httpx.Response(308, headers={"location": "https://gateway/v1/reflections"}), FatalError),
        (httpx.Response(200, html="<html>log in</html>"), FatalError),
        (httpx.Response(204), FatalError),
        (httpx.Response(202, html="<html>queued</html>"), FatalError),
        (httpx.Response(202, json={"accepted": 0, "repeated": 0, "refused": 0, "items": []}), FatalError),
    ],
)
async def test_what_no_gateway_answers_is_no_acknowledgement(
    answer: httpx.Response, kind: type[CombeeError]
) -> None:
    with pytest.raises(kind):
        await transport(lambda _: answer).send([SAID])


async def test_a_gateways_reason_controls_no_terminal() -> None:
    refused = httpx.Response(403, json={"detail": "no\x1b[2J key"})
    with pytest.raises(FatalError) as raised:
        await transport(lambda _: refused).send([SAID])
    assert str(raised.value).isprintable()


async def test_a_busy_gateways_wait_is_a_number_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "RETRY_S", 0)
    busy = httpx.Response(429, headers=[(b"retry-after", "²".encode())])
    with pytest.raises(TransientError):
        await transport(lambda _: busy).send([SAID])


async def test_only_a_newline_ends_a_line_of_an_event_because_ids_of_others_hold_unicodes_line_ends() -> None:
    data = "r-\u2028id: 9@9\u2029event: deleted\x85data: y"
    text = f"id: 1@7\nevent: version\ndata: {data}\n\n"
    assert await heard(text) == [Event(kind="version", data=data, id="1@7")]
    assert await heard(*text.replace("\n", "\r\n")) == await heard(text)


async def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENT", 100)
    assert await heard(*["data: x\n\n"] * 100)
    for endless in (["x" * 9] * 20, ["data: x\n"] * 20):
        with pytest.raises(TransientError, match="more than 100 characters"):
            await heard(*endless)


async def test_a_body_is_bounded_and_never_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MAX_EVENT", 1000)
    long = httpx.Response(200, stream=httpx.ByteStream(b" " * 1001))
    with pytest.raises(TransientError, match="longer than 1000 bytes"):
        await transport(lambda _: long).fetch(NAME, 1)
    packed = httpx.ByteStream(gzip.compress(b" " * 10_000))
    small = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=packed)
    with pytest.raises(TransientError, match="compressed"):
        await transport(lambda _: small).fetch(NAME, 1)


@dataclass
class Taken:
    """Keeps what a transport delivers."""

    playbooks: list[Playbook] = field(default_factory=list)

    def take(self, _key: str, message: Playbook | Label | None) -> None:
        if isinstance(message, Playbook):
            self.playbooks.append(message)

    def current(self, _name: str | None) -> None:
        pass


async def test_an_event_that_is_no_label_does_not_end_the_following(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "RETRY_S", 0)
    playbook = Playbook(name=NAME, version=4).model_dump_json()
    streams = iter(
        (
            'event: label\ndata: {"name": "x", "label": "", "version": 1}\n\n',
            f'event: version\ndata: {{"name": "{NAME}", "playbook": {playbook}}}\n\n',
        )
    )

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            return httpx.Response(200, json={"playbooks": []})
        return httpx.Response(200, text=next(streams, ": nothing\n\n"))

    followed, sink = transport(answer), Taken()
    following = asyncio.create_task(followed.follow(sink))
    await followed.watch(NAME, "")
    await until(lambda: sink.playbooks)
    assert sink.playbooks[0].version == 4
    following.cancel()
    await followed.close()
