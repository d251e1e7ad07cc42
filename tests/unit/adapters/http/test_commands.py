"""Commands over HTTP: sent once, and awaited."""

import json
from collections.abc import Iterator

import httpx
import pytest

from combee.adapters.http import commands
from combee.adapters.http.commands import MAX_WAIT_S, GatewayCommands
from combee.adapters.ports import ConfigurationError, PoisonError, TransientError


class Gateway:
    """Answers with what it was given, in order."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.requests: list[httpx.Request] = []
        self._answers: Iterator[tuple[int, object]] = iter(answers)

    def commands(self) -> GatewayCommands:
        return GatewayCommands("http://gateway/", api_key="secret", http=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status, body = next(self._answers)
        return httpx.Response(status, json=body)


async def test_a_command_is_sent_with_its_key_and_waits_for_its_effect() -> None:
    gateway = Gateway((200, {"command_id": "c", "done": True, "version": 7, "later": "field"}))

    effect = await gateway.commands().send("a/b", "import", {"text": "{}"}, wait_s=MAX_WAIT_S)

    (request,) = gateway.requests
    assert request.url.raw_path == b"/v1/playbooks/a%2Fb/import?wait_s=60"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"text": "{}"}
    assert effect.version == 7


async def test_an_effect_that_does_not_come_is_an_error_only_if_it_was_awaited() -> None:
    gateway = Gateway(*[(202, {"command_id": "c"})] * 2)

    assert not (await gateway.commands().send("a", "flush", {})).done
    with pytest.raises(TransientError, match="within 60 s"):
        await gateway.commands().send("a", "flush", {}, wait_s=MAX_WAIT_S)


async def test_a_reflections_fate_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOOK_EVERY_S", 0)
    states = ("waiting", "in_batch", "applied")
    gateway = Gateway(*((200, {"state": state, "detail": "", "version": 3}) for state in states))

    fate = await gateway.commands().fate("a", "r-1")

    assert (fate.state, fate.version) == ("applied", 3)
    assert gateway.requests[0].url.raw_path == b"/v1/reflections/r-1?playbook=a"


async def test_what_is_held_until_a_setting_changes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(commands, "HELD_S", 0)
    held = {"state": "waiting", "held": "nothing is learned until COMBEE_METHOD=gepa again"}

    with pytest.raises(ConfigurationError, match="COMBEE_METHOD=gepa"):
        await Gateway((200, held)).commands().fate("a", "r-1")


async def test_what_a_gateway_only_supposes_is_held_may_be_in_a_batch_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "LOOK_EVERY_S", 0)
    answers = ({"state": "waiting", "held": "so it seems"}, {"state": "applied", "version": 3})

    fate = await Gateway(*((200, answer) for answer in answers)).commands().fate("a", "r-1")

    assert fate.version == 3


async def test_refusals_and_nonsense_are_errors() -> None:
    with pytest.raises(PoisonError, match="409"):
        await Gateway((409, {})).commands().send("a", "import", {})
    with pytest.raises(PoisonError, match="not a CommandEffect"):
        await Gateway((200, [])).commands().send("a", "import", {})
