import json
import re
from base64 import b64encode
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256

import httpx2
import pytest

from combee.adapters.openai.clients import staying_at
from combee.adapters.openai.model import OpenAIModel
from combee.adapters.openai.wire import read_answer
from combee.adapters.ports import ConfigurationError, PoisonError, PromptTooLongError, TransientError
from combee_schemas.model import Prompt
from support import model_rig
from support.fake_openai import FakeOpenAI, fake_openai, refuses, says
from support.model_rig import GOOD, KEY, PROMPT, SCHEMA, Build

server, build, model = model_rig.server, model_rig.build, model_rig.model

RECORDED = "bf7a1a9bc3d5ceea8cf434701fbd6b10f9f95f56a848f7966e1a12a678ae294c"
"""The hash of this prompt, under which its reply stands in a log."""
FREE = Prompt(system="Answer.", user="What?", reply_name="text")
OTHER_LETTERS = Prompt(
    system="Antworte. €\n",
    user='naïve 😀\t"\\',
    reply_name="lessons",
    reply_schema=SCHEMA,
    cache_key="combee-0123",
)


async def test_a_reply_is_parsed_and_its_cost_is_counted(model: OpenAIModel) -> None:
    reply = await model.ask(PROMPT)
    usage = reply.usage
    assert reply.body == {"items": [1]}
    assert (usage.calls, usage.tokens_in, usage.tokens_out, usage.retries, usage.re_asks) == (1, 7, 3, 0, 0)
    assert 0 < usage.seconds < 5


@pytest.mark.parametrize(
    ("prompt", "options", "refusals", "recorded"),
    [
        (PROMPT, {"seed": 4, "max_output_tokens": 99}, [], RECORDED),
        (FREE, {"temperature": None}, [], "00192f1a34353caa9174d2c5e51cbcaca2413823fed2312743e7c775dbcebf99"),
        (OTHER_LETTERS, {}, [], "6e475eda6f4f33eb267d24a59bf00ec9d5e1cda1b80ad72f1e52dfd08077732e"),
        (
            PROMPT,
            {"max_output_tokens": 99},
            ["max_tokens", "temperature", "json_schema"],
            "22adb666debe3720c6ca2dbcfd35f3a76d12fe563b23a0d41cb02fb0edd607e8",
        ),
    ],
    ids=["a schema", "free text", "letters of the world and a cache key", "options that a server refuses"],
)
async def test_each_form_of_a_request_has_the_hash_under_which_its_reply_stands_in_a_log(
    server: FakeOpenAI,
    build: Build,
    prompt: Prompt,
    options: dict[str, object],
    refusals: list[str],
    recorded: str,
) -> None:
    server.always = says('{"items": [], "text": "some"}')
    server.will(*(refuses(400, f"{name} is not supported") for name in refusals))
    model = build(**options)
    assert (await model.ask(prompt)).request == model.request(prompt) == recorded
    assert sha256(server.seen[-1].content).hexdigest() == recorded


async def test_a_redirect_to_another_host_is_refused_with_the_remedy_before_the_prompt_is_there(
    server: FakeOpenAI, build: Build
) -> None:
    async with fake_openai() as other:
        other.always = says(GOOD)
        location = {"location": f"{other.url}/chat/completions"}
        server.always = lambda exchange: exchange.send(b"", location, status=307)
        for address in (server.url, server.url.replace("://", "://me:word@")):
            with pytest.raises(
                TransientError, match=r"no prompt is sent there: .* the base URL \(OPENAI_BASE_URL"
            ):
                await build(base_url=address, give_up_after_s=0.1).ask(PROMPT)
    assert other.seen == []


async def test_a_redirect_on_the_same_host_is_followed_with_the_key(server: FakeOpenAI, build: Build) -> None:
    location = {"location": f"{server.url}/elsewhere/chat/completions"}
    server.will(lambda exchange: exchange.send(b"", location, status=307))
    assert (await build().ask(PROMPT)).body == {"items": [1]}
    assert ["authorization" in exchange.headers for exchange in server.seen] == [True, True]


@pytest.mark.parametrize(
    ("home", "asked", "is_refused"),
    [
        ("http://models.example/v1", "https://models.example/v1/chat", False),
        ("https://models.example/v1", "https://models.example:443/chat", False),
        ("https://u:p@models.example/v1", "https://models.example/chat", False),
        ("https://models.example/v1", "http://models.example/v1/chat", True),
        ("https://models.example/v1", "https://models.example:8443/chat", True),
        ("https://models.example/v1", "https://other.example/chat", True),
        ("http://models.example:8000/v1", "https://models.example/chat", True),
        ("https://models.example/v1", "https://models.example.evil/chat", True),
    ],
)
async def test_a_server_is_the_same_under_its_host_and_port_and_never_less_private(
    home: str,
    asked: str,
    is_refused: bool,  # noqa: FBT001 - a parameter
) -> None:
    check = staying_at(httpx2.URL(home))
    with pytest.raises(TransientError) if is_refused else nullcontext():
        await check(httpx2.Request("POST", asked))


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}}, 5),
        ({"input_tokens_details": {"cached_tokens": 6}}, 6),
        ({"prompt_tokens_details": {"cached_tokens": 99}}, 7),
        ({"prompt_tokens_details": {"cached_tokens": "5"}}, 0),
        ({"prompt_tokens_details": "none"}, 0),
        ({"prompt_tokens_details": None}, 0),
    ],
)
def test_tokens_from_the_servers_cache_are_counted_as_far_as_they_can_be_true(
    details: dict[str, object], cached: int
) -> None:
    body = {
        "choices": [{"message": {"content": "{}"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, **details},
    }
    content = json.dumps(body).encode()
    answer = read_answer(content, max_bytes=1 << 20, messages=[], seconds=0.1, shown=str)
    assert (answer.usage.tokens_in, answer.usage.cached_tokens) == (7, cached)


async def test_the_unchanging_part_comes_first_and_every_setting_is_sent(
    server: FakeOpenAI, build: Build
) -> None:
    await build(model="openai/fake", max_output_tokens=99, seed=4).ask(PROMPT)
    body = server.seen[0].body
    assert body["messages"] == [
        {"role": "system", "content": PROMPT.system},
        {"role": "user", "content": PROMPT.user},
    ]
    assert {name: body[name] for name in ("model", "temperature", "seed", "max_tokens")} == {
        "model": "fake",
        "temperature": 0.0,
        "seed": 4,
        "max_tokens": 99,
    }
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


async def test_an_accounts_organisation_and_project_are_sent_as_the_vendors_clients_do(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    await build().ask(PROMPT)
    headers = server.seen[0].headers
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-1", "proj-1")


async def test_headers_of_openais_own_variable_are_sent_to_every_server_and_their_keys_not_shown(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: g4teway\nAuthorization: Basic dG9wOnM\nX-Team: blue"
    )
    model = build(give_up_after_s=0)
    await model.ask(PROMPT)
    headers = server.seen[0].headers
    assert (headers["x-gateway-key"], headers["x-team"]) == ("g4teway", "blue")
    assert headers["authorization"] == "Basic dG9wOnM", "instead of the key"
    server.always = refuses(401, "g4teway and dG9wOnM are wrong for team blue")
    with pytest.raises(TransientError, match=r"\*\*\* and \*\*\* are wrong for team blue"):
        await model.ask(PROMPT)


async def test_the_most_talkative_logs_of_all_libraries_show_no_key_and_nothing_that_is_asked_or_answered(
    server: FakeOpenAI, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: g4teway")
    caplog.set_level("DEBUG")
    caplog.set_level("DEBUG", "openai")  # as OPENAI_LOG=debug does
    secret = replace(PROMPT, system="s3cretsystem", user="s3cretquestion")
    server.will(refuses(500, "s3cretrefusal"), says('{"items": ["s3cretanswer"]}'))
    await build(base_url=server.url.replace("://", "://me:s3cretword@")).ask(secret)
    assert "HTTP Response: POST 200" in caplog.text
    assert not re.search(rf"{KEY}|g4teway|s3cret", caplog.text.replace("s3cretrefusal", ""))


@pytest.mark.parametrize("proxy", ["http://me:pr0xyword@127.0.0.1:9", "gopher://me:pr0xyword@proxy"])
async def test_the_password_of_a_proxy_is_not_shown(
    build: Build, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    model = build(base_url="http://model.example/v1", give_up_after_s=0)
    with pytest.raises((TransientError, ConfigurationError)) as raised:
        await model.ask(PROMPT)
    assert "pr0xyword" not in f"{raised.value} {model.trouble}"


async def test_who_stands_in_the_address_is_sent_instead_of_the_key(server: FakeOpenAI, build: Build) -> None:
    await build(base_url=server.url.replace("://", "://me:word@")).ask(PROMPT)
    assert server.seen[0].headers["authorization"] == f"Basic {b64encode(b'me:word').decode()}"


async def test_free_text_is_asked_for_without_a_format(server: FakeOpenAI, model: OpenAIModel) -> None:
    server.will(says("some text"))
    assert (await model.ask(FREE)).body == {"text": "some text"}
    assert "response_format" not in server.seen[0].body


async def test_a_proxy_from_the_environment_does_not_hijack_loopback_calls(
    monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert (await build(give_up_after_s=0).ask(PROMPT)).body == {"items": [1]}


async def test_a_prompt_that_is_too_long_is_said_so_at_once(server: FakeOpenAI, model: OpenAIModel) -> None:
    server.will(refuses(500), refuses(400, "maximum context length", code="context_length_exceeded"))
    with pytest.raises(PromptTooLongError):
        await model.ask(PROMPT)
    assert model.answering


async def test_a_refused_prompt_is_poison_with_the_servers_words_shortened(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    server.will(refuses(400, "your messages are odd " + "x" * 5000))
    with pytest.raises(PoisonError, match="your messages are odd") as raised:
        await model.ask(PROMPT)
    assert len(str(raised.value)) < 400
    assert len(server.seen) == 1


async def test_a_format_the_server_refuses_is_given_up_step_by_step_and_remembered(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    server.will(refuses(400, "json_schema is not supported"), refuses(400, "no response_format here"))
    first = await model.ask(PROMPT)
    await model.ask(PROMPT)
    formats = [exchange.body.get("response_format", {}).get("type") for exchange in server.seen]
    assert formats == ["json_schema", "json_object", None, None]
    assert (first.usage.calls, first.usage.retries, first.usage.re_asks) == (1, 0, 0)


async def test_one_schema_that_is_disliked_says_nothing_about_another(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    other = Prompt(system="s", user="u", reply_name="other", reply_schema=SCHEMA)
    server.will(refuses(400, "Invalid schema for response_format 'answer'"))
    await model.ask(PROMPT)
    await model.ask(other)
    assert server.seen[2].body["response_format"]["type"] == "json_schema"


async def test_a_server_that_refuses_every_format_is_not_asked_for_ever(
    server: FakeOpenAI, build: Build
) -> None:
    server.always = refuses(400, "response_format, temperature, seed, max_tokens, max_completion_tokens")
    with pytest.raises(PoisonError):
        await build(max_output_tokens=5, seed=1).ask(PROMPT)
    assert len(server.seen) == 7


async def test_parameters_a_newer_model_refuses_are_dropped(server: FakeOpenAI, build: Build) -> None:
    model = build(max_output_tokens=50)
    server.will(
        refuses(400, "Unsupported parameter: use 'max_completion_tokens' instead", param="max_tokens"),
        refuses(400, "Unsupported value: only the default (1) is supported", param="temperature"),
    )
    await model.ask(PROMPT)
    await model.ask(PROMPT)
    assert len(server.seen) == 4
    assert server.seen[3].body["max_completion_tokens"] == 50
    assert "max_tokens" not in server.seen[3].body
    assert "temperature" not in server.seen[3].body


KEYED = replace(PROMPT, cache_key="combee-0123456789abcdef")


async def test_a_prompt_s_cache_key_is_sent_and_a_prompt_without_one_sends_none(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    await model.ask(KEYED)
    await model.ask(PROMPT)
    assert server.seen[0].body["prompt_cache_key"] == "combee-0123456789abcdef"
    assert "prompt_cache_key" not in server.seen[1].body


@pytest.mark.parametrize(
    "told",
    [
        "Unrecognized request argument supplied: prompt_cache_key",
        "[{'type': 'extra_forbidden', 'loc': ['body'], 'msg': 'Extra inputs are not permitted'}]",
        "Unknown field in request body",
        "property 'prompt_cache_key' is unsupported",
    ],
)
async def test_a_server_that_does_not_know_cache_keys_is_asked_without_from_then_on(
    server: FakeOpenAI, model: OpenAIModel, told: str
) -> None:
    server.will(refuses(400, told))
    await model.ask(KEYED)
    await model.ask(KEYED)
    assert ["prompt_cache_key" in exchange.body for exchange in server.seen] == [True, False, False]
    assert server.seen[2].body["response_format"]["type"] == "json_schema"


async def test_an_error_text_that_utf_8_cannot_hold_can_be_written_to_logs_and_topics(
    server: FakeOpenAI, model: OpenAIModel
) -> None:
    server.will(refuses(400, "odd \ud800"))
    with pytest.raises(PoisonError, match=r"odd \?") as raised:
        await model.ask(PROMPT)
    assert str(raised.value).encode()
