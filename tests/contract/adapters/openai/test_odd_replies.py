"""Each odd reply, and each way to get none, meets a fate; a stopped worker is the fate of wrong settings alone."""

from collections.abc import Mapping
from typing import Literal

import pytest

from combee.adapters.openai.model import OpenAIModel
from combee.adapters.ports import (
    ConfigurationError,
    CutOffError,
    PoisonError,
    PromptTooLongError,
    TransientError,
)
from support import fake_openai as fake
from support import model_rig
from support.fake_openai import FakeOpenAI, refuses, says, sends
from support.model_rig import GOOD, KEY, PROMPT, Build

server, build = model_rig.server, model_rig.build

Fate = Literal[
    "retried", "retried slowly", "asked again", "dead letter", "asked again, shorter", "refused at start"
]
PAGE = b"<!doctype html><html>Sign in</html>"


def raw(answer: bytes) -> fake.Script:
    """Answer with bytes that need not be HTTP."""

    async def script(exchange: fake.Exchange) -> None:
        exchange.writer.write(answer)
        await exchange.writer.drain()

    return script


def head(status: int, **headers: str) -> fake.Script:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return raw(f"HTTP/1.1 {status} Odd\r\nconnection: close\r\n{lines}\r\n".encode())


ODD: Mapping[str, tuple[fake.Script, Fate]] = {
    "nothing at all": (raw(b""), "retried"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), "retried"),
    "a length that is no number": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"), "retried"),
    "a header without end": (raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"), "retried"),
    "a reset": (fake.resets, "retried"),
    "a body cut off": (fake.cuts_off, "retried"),
    "JSON cut off": (sends(fake.completion(GOOD)[:-30]), "retried"),
    "no JSON": (sends(b"OK"), "retried"),
    "an empty body": (sends(b""), "retried"),
    "no content": (head(204), "retried"),
    "broken gzip": (sends(b"not zipped", {"content-encoding": "gzip"}), "retried"),
    "gzip in gzip in gzip": (sends(b"x", {"content-encoding": ", ".join(["gzip"] * 9)}), "retried"),
    "an encoding nobody knows": (sends(b"x", {"content-encoding": "rot13"}), "retried"),
    "a redirect to itself": (head(307, location="/v1/chat/completions"), "retried"),
    "a redirect elsewhere": (head(307, location="ftp://127.0.0.1/"), "retried slowly"),
    "nothing in time": (fake.hangs, "retried"),
    "a byte now and then": (fake.drips, "retried"),
    "an error in a 200": (sends(b'{"choices": null, "error": {"code": 503, "message": "busy"}}'), "retried"),
    "an error without a code": (sends(b'{"choices": null, "error": {"message": "busy"}}'), "retried"),
    "a used-up quota in a 200": (sends(b'{"error": {"code": 402, "message": "pay"}}'), "retried slowly"),
    "not modified": (head(304), "retried slowly"),
    "a web page": (sends(PAGE, {"content-type": "text/html"}), "retried slowly"),
    "a web page that is not there": (lambda ex: ex.send(PAGE, {}, status=404), "retried slowly"),
    "a web page of a broken proxy": (lambda ex: ex.send(PAGE, {}, status=502), "retried"),
    "a wrong key": (refuses(401, f"Incorrect API key provided: {KEY}"), "retried slowly"),
    "a used-up quota": (refuses(429, code="insufficient_quota"), "retried slowly"),
    "an unknown model": (refuses(404, "The model m does not exist"), "retried slowly"),
    "a list for an error": (lambda ex: ex.send(b'["no"]', {}, status=500), "retried"),
    "an error that is a word": (lambda ex: ex.send(b'{"error": "no"}', {}, status=400), "dead letter"),
    "a prompt that is disliked": (refuses(400, "your messages are odd"), "dead letter"),
    "a prompt that is filtered": (refuses(400, "flagged", code="content_filter"), "dead letter"),
    "a prompt that is too long": (refuses(413), "asked again, shorter"),
    "choices that are none": (sends(b'{"choices": null}'), "asked again"),
    "a choice that is a word": (sends(b'{"choices": ["a"]}'), "asked again"),
    "a body that is a list": (sends(b"[]"), "asked again"),
    "far too much": (fake.floods, "asked again"),
    "far too much, zipped": (fake.zipped(fake.completion("x" * 2_000_000)), "asked again"),
    "an end at the length limit": (says(GOOD, finish_reason="length"), "asked again"),
    "an answer that is withheld": (says(GOOD, finish_reason="content_filter"), "asked again"),
}


async def fate_of(model: OpenAIModel, asked: FakeOpenAI) -> Fate:
    try:
        await model.ask(PROMPT)
    except TransientError:
        return "retried slowly" if model.refusal else "retried"
    except PromptTooLongError:
        return "asked again, shorter"
    except PoisonError:
        return "asked again" if len(asked.seen) > 1 else "dead letter"
    except ConfigurationError:
        return "refused at start"
    raise AssertionError("it was taken for an answer")


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_reply_meets_its_fate_and_shows_no_key(
    server: FakeOpenAI, build: Build, odd: str
) -> None:
    server.always, fate = ODD[odd]
    model = build(give_up_after_s=0, timeout_s=2.0, max_reply_bytes=100_000)
    assert await fate_of(model, server) == fate
    assert KEY not in str(model.trouble)


@pytest.mark.parametrize("odd", ["far too much", "an end at the length limit"])
async def test_a_reply_that_is_cut_off_says_so_with_the_cost_of_both_calls(
    server: FakeOpenAI, build: Build, odd: str
) -> None:
    server.always, _ = ODD[odd]
    with pytest.raises(CutOffError) as caught:
        await build(max_reply_bytes=100_000).ask(PROMPT)
    assert (caught.value.usage.calls, caught.value.usage.re_asks) == (2, 1)


async def test_an_address_where_nobody_listens_is_asked_again(server: FakeOpenAI, build: Build) -> None:
    assert await fate_of(build(give_up_after_s=0, base_url="http://127.0.0.1:9/v1"), server) == "retried"
    assert await fate_of(build(give_up_after_s=0, base_url="http://nobody.invalid/v1"), server) == "retried"


async def test_settings_that_make_no_client_are_refused(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "gopher://proxy")
    assert await fate_of(build(base_url="http://model.example/v1"), server) == "refused at start"


async def test_the_key_of_openai_goes_to_no_other_host(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-of-an-admin")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    await build(api_key=None).ask(PROMPT)
    assert "sk-of" not in str(server.seen[0].headers)
