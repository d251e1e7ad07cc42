"""The doctor's questions to a model, and everything it asks of something that never answers."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
import structlog

from combee.adapters.openai.names import Server
from combee.adapters.openai.probe import try_forms
from combee.adapters.ports import ModelCall
from combee.cli.doctor.examine import examine
from combee.cli.doctor.probes import TRIAL, model
from combee.core.log.diagnosis import Check
from combee.core.methods import ace
from combee.process.settings.loading import load_settings
from combee.process.settings.model import ModelSettings
from combee_sim.server.faults import fault_rates
from combee_sim.server.server import running
from combee_sim.server.standin import SimOptions
from support.fake_openai import Exchange, FakeOpenAI, hangs, refuses, says
from support.model_rig import GOOD, KEY, PROMPT, Build, build, server
from support.waiting import until

__all__ = ["build", "server"]
REFLECTION = (
    '{"reasoning": "r", "error_identification": "e", "root_cause_analysis": "c", "correct_approach": "a",'
)
REFLECTION += ' "key_insight": "i", "bullet_tags": []}'
TIMEOUT_S = 0.5


async def ask(url: str, timeout_s: float = 5.0) -> Check:
    settings = load_settings(model="some", base_url=url)
    (check,) = await model(settings.model, timeout_s)
    return check


def stand_in(url: str) -> ModelSettings:
    return load_settings(model="simulated", base_url=url).model


async def answers(exchange: Exchange, *, refused: tuple[str, ...]) -> None:
    form = exchange.body.get("response_format", {}).get("type", "text")
    told = refuses(400, f"response_format {form} is not supported", param="response_format")
    await (told if form in refused else says(REFLECTION))(exchange)


@pytest.mark.parametrize(
    ("refused", "verdict", "told"),
    [
        ((), "ok", "JSON schema, JSON mode, plain text"),
        (("json_schema",), "ok", "JSON mode, plain text"),
        (("json_schema", "json_object"), "warn", "plain text"),
    ],
)
async def test_what_a_server_refuses_is_not_among_its_abilities(
    server: FakeOpenAI, refused: tuple[str, ...], verdict: str, told: str
) -> None:
    server.always = lambda exchange: answers(exchange, refused=refused)
    check = await ask(server.url)
    assert check.verdict == verdict
    assert check.says.endswith(f": {told}")
    assert len(server.seen) == 3


async def test_an_option_that_is_refused_is_given_up_and_the_form_kept(server: FakeOpenAI) -> None:
    async def without_temperature(exchange: Exchange) -> None:
        refusal = refuses(400, "temperature is not supported", param="temperature")
        await (refusal if "temperature" in exchange.body else says(REFLECTION))(exchange)

    server.always = without_temperature
    assert (await ask(server.url)).says.endswith("JSON schema, JSON mode, plain text")


async def test_a_model_that_answers_nonsense_fails(server: FakeOpenAI) -> None:
    server.always = says("I am a teapot")
    check = await ask(server.url)
    assert (check.verdict, "no reply" in check.says) == ("fail", True)


async def test_a_wrong_key_is_told_with_its_remedy(server: FakeOpenAI) -> None:
    server.always = refuses(401, "bad key", code="invalid_api_key")
    check = await ask(server.url)
    assert check.verdict == "fail"
    assert check.remedy == (
        "check the API key (OPENAI_API_KEY, on Azure AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN)"
    )


async def test_each_form_is_asked_once_even_if_it_fails(server: FakeOpenAI) -> None:
    server.always = refuses(500)
    tried = await try_forms(
        ace.reflect_prompt(TRIAL, ()), name="m", server=Server(url=server.url), timeout_s=5.0
    )
    assert {one.outcome for one in tried.values()} == {"failed"}
    assert len(server.seen) == 3


async def test_a_model_that_hangs_is_given_up(server: FakeOpenAI) -> None:
    server.always = hangs
    check = await ask(server.url, TIMEOUT_S)
    assert check.verdict == "fail"
    assert "did not answer within" in check.says


async def test_the_stand_in_passes_as_a_simulation_and_its_faults_do_not() -> None:
    async with running(SimOptions()) as url:
        (check,) = await model(stand_in(url), 5.0)
    assert (check.verdict, check.says.split()[0]) == ("ok", "simulated")
    for fault in ("hang", "500", "malformed", "empty", "truncated"):
        async with running(SimOptions(faults=fault_rates({fault: 1.0}))) as url:
            (check,) = await model(stand_in(url), TIMEOUT_S)
        assert check.verdict == "fail", fault
        assert check.remedy


# ---- something that accepts and never says a word


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Let the system accept connections that nobody looks at."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def own_logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("own_logs")
async def test_the_doctor_never_hangs() -> None:
    with black_hole() as port:
        settings = load_settings(
            bootstrap_servers=f"127.0.0.1:{port}", model="some", base_url=f"http://127.0.0.1:{port}/v1"
        )
        began_s = time.monotonic()
        async with asyncio.timeout(20):
            checks = {check.name: check for check in await examine(settings, None, TIMEOUT_S)}
    assert time.monotonic() - began_s < 10
    assert checks["broker"].verdict == "fail"
    assert checks["broker"].says == "no answer within 0.5 s"
    assert "start Kafka there" in checks["broker"].remedy
    assert checks["model"].verdict == "fail"
    assert {checks[name].verdict for name in ("topics", "clock", "lag", "dead letters", "batches")} == {
        "skip"
    }


# ---- what a worker's metrics hear of the same client


async def test_every_call_is_told_with_its_outcome_its_attempt_and_its_tokens(
    server: FakeOpenAI, build: Build
) -> None:
    calls: list[ModelCall] = []
    server.will(refuses(500), says(GOOD))
    await build(on_call=calls.append).ask(PROMPT)
    assert [(one.outcome, one.attempt, one.tokens_in, one.tokens_out) for one in calls] == [
        ("failed", 1, 0, 0),
        ("answered", 2, 7, 3),
    ]
    assert all(one.seconds > 0 for one in calls)


async def test_a_refused_form_is_told_as_refused(server: FakeOpenAI, build: Build) -> None:
    calls: list[ModelCall] = []
    server.will(refuses(400, "json_schema is not supported", param="response_format"))
    await build(on_call=calls.append).ask(PROMPT)
    assert [one.outcome for one in calls] == ["refused", "answered"]


async def test_a_permanent_refusal_stands_until_the_model_answers(server: FakeOpenAI, build: Build) -> None:
    model = build(permanent_wait_s=0.05)
    server.will(refuses(500), refuses(401, f"bad {KEY}"))
    refusals: list[str | None] = []
    asking = asyncio.create_task(model.ask(PROMPT))
    await until(lambda: model.trouble is not None)
    refusals.append(model.refusal)
    await until(lambda: model.refusal is not None)
    assert "check the API key" in (model.refusal or "")
    assert KEY not in (model.refusal or "")
    await asking
    assert model.refusal is None
    assert refusals == [None]
