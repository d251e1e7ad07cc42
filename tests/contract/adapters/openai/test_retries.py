import asyncio

import pytest
from structlog.testing import capture_logs

from combee.adapters.openai.model import OpenAIModel
from combee.adapters.ports import TransientError
from support import fake_openai as fake
from support import model_rig
from support.fake_openai import FakeOpenAI, refuses, says
from support.model_rig import GOOD, KEY, PROMPT, Build
from support.waiting import until

server, build, model = model_rig.server, model_rig.build, model_rig.model


@pytest.mark.parametrize(
    "failure",
    [refuses(429), refuses(500), refuses(503), refuses(408), refuses(409), fake.resets],
    ids=["429", "500", "503", "408", "409", "reset"],
)
async def test_a_transient_failure_is_tried_again_and_counted(
    server: FakeOpenAI, model: OpenAIModel, failure: fake.Script
) -> None:
    server.will(failure, failure)
    usage = (await model.ask(PROMPT)).usage
    assert (usage.calls, usage.retries, usage.re_asks) == (1, 2, 0)
    assert len(server.seen) == 3


@pytest.mark.parametrize("failure", [fake.hangs, fake.drips], ids=["hangs", "drips"])
async def test_a_call_without_end_is_given_up_at_the_time_out(
    server: FakeOpenAI, build: Build, failure: fake.Script
) -> None:
    server.will(failure)
    reply = await build(timeout_s=0.1).ask(PROMPT)
    assert reply.usage.retries == 1
    assert server.gaps_s[0] < 1


async def test_a_server_that_is_not_there_is_waited_for(build: Build) -> None:
    model = build(base_url="http://127.0.0.1:9/v1")
    asked = asyncio.create_task(model.ask(PROMPT))
    await until(lambda: not model.answering)
    assert "127.0.0.1:9" in str(model.trouble)
    assert not asked.done()
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()


async def test_retry_after_is_honoured(server: FakeOpenAI, model: OpenAIModel) -> None:
    server.will(refuses(429, headers={"retry-after": "0.15"}))
    await model.ask(PROMPT)
    assert 0.15 <= server.gaps_s[0] < 2


async def test_retries_are_ours_alone(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(500)
    with pytest.raises(TransientError):
        await build(give_up_after_s=0).ask(PROMPT)
    assert len(server.seen) == 1


async def test_patience_ends_when_it_is_bounded(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(500)
    with pytest.raises(TransientError):
        await build(give_up_after_s=0.08).ask(PROMPT)
    assert len(server.seen) > 2


@pytest.mark.parametrize(
    "failure",
    [refuses(401), refuses(403), refuses(404), refuses(429, code="insufficient_quota")],
    ids=["401", "403", "404", "quota"],
)
async def test_a_permanent_error_pauses_loudly_and_goes_on_when_it_is_mended(
    server: FakeOpenAI, model: OpenAIModel, failure: fake.Script
) -> None:
    server.always = failure
    with capture_logs() as logs:
        asked = asyncio.create_task(model.ask(PROMPT))
        await server.has_seen(3)
        assert not model.answering
        assert "check" in str(model.trouble) or "quota" in str(model.trouble)
        server.always = says(GOOD)
        assert (await asked).body == {"items": [1]}
    assert model.answering
    assert model.trouble is None
    assert min(server.gaps_s) >= 0.03
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
        "the model does not answer"
    ]


async def test_a_key_and_a_password_are_never_shown(server: FakeOpenAI, build: Build) -> None:
    server.always = refuses(401, f"Incorrect key {KEY}, sk-abcdefghij, password pass=word")
    model = build(give_up_after_s=0, base_url=server.url.replace("://", "://me:pass%3Dword@"))
    with capture_logs() as logs, pytest.raises(TransientError) as raised:
        await model.ask(PROMPT)
    shown = f"{raised.value} {raised.value.__cause__} {logs} {model.trouble} {model!r} {vars(model)}"
    assert "***" in shown
    assert KEY not in shown
    assert "pass=word" not in shown
    assert "sk-abcdefghij" not in shown
