"""Recorded answers: whoever asks the same gets what was said, and pays nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, PoisonError, TransientError
from combee.log.history import whole
from combee.scan import recorded
from combee.scan.recorded import RecordedAnswers, RecordedModel
from combee_schemas import topics
from combee_schemas.answer import Answer
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from support.clock import ManualClock
from support.models import ModelClient, ScriptedModel


def prompt(text: str) -> Prompt:
    return Prompt(system="s", user=text, reply_name="operations")


def said(asked: Prompt) -> Mapping[str, Any]:
    return {"text": f"about {asked.user}: äöü"}


class Asking:
    """A model whose answers are recorded in a log."""

    def __init__(self, log: MemoryLog | None = None, known: MemoryLog | None = None) -> None:
        self.server = ScriptedModel(said)
        self.log = log or MemoryLog(ManualClock())
        client = ModelClient(self.server)
        answers = RecordedAnswers(known) if known else None
        self.model = RecordedModel(client, client.request, self.log, ManualClock(), known=answers)


async def test_an_answer_is_recorded_under_its_request_and_used_again_for_the_same_alone() -> None:
    original = Asking()
    first = await original.model.ask(prompt("a"))
    await original.model.close()
    replay = Asking(known=original.log)
    again, other = await replay.model.ask(prompt("a")), await replay.model.ask(prompt("b"))
    await replay.model.close()

    assert (again.body, again.request) == (first.body, ModelClient(replay.server).request(prompt("a")))
    assert [asked.user for asked in replay.server.prompts] == ["b"]
    assert (again.usage.reused, again.usage.calls) == (first.usage.calls, first.usage.calls)
    assert again.usage.reused_tokens == first.usage.tokens_in + first.usage.tokens_out
    assert (other.usage.reused, other.usage.reused_tokens) == (0, 0)
    assert len(await whole(replay.log, topics.ANSWERS)) == 1, "what is known is not written again"


async def test_without_a_record_to_look_in_every_answer_is_asked_for() -> None:
    asking = Asking()
    await asking.model.ask(prompt("a"))
    await asking.model.ask(prompt("a"))
    assert asking.server.calls == 2


async def test_what_cannot_be_recorded_is_used_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking()

    async def refuses(*_: Outgoing) -> None:
        raise TransientError("the broker is away")

    monkeypatch.setattr(asking.log, "produce", refuses)
    assert (await asking.model.ask(prompt("a"))).body == said(prompt("a"))
    asking.server.answer = lambda _: {"text": "x" * topics.ANSWERS.message.max_bytes}
    assert (await asking.model.ask(prompt("b"))).usage != Usage()
    await asking.model.close()


async def test_why_answers_are_not_recorded_is_told_once_until_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking()
    produce, troubles = asking.log.produce, iter(["no right", "no right", "away", "", "away"])

    async def refuses(*outgoing: Outgoing) -> Sequence[int]:
        if trouble := next(troubles):
            raise TransientError(trouble)
        return await produce(*outgoing)

    monkeypatch.setattr(asking.log, "produce", refuses)
    with capture_logs() as logs:
        for n in range(5):
            await asking.model.ask(prompt(str(n)))
            await asyncio.gather(*asking.model._writing)
    assert [each["reason"] for each in logs] == ["no right", "away", "away"]


async def test_an_answer_that_cannot_be_read_and_a_key_that_is_none_of_ours_are_passed_over() -> None:
    asking = Asking()
    key = ModelClient(asking.server).request(prompt("a")).encode()
    for foreign in (key, b"no hash"):
        await asking.log.produce(Outgoing(topic=topics.ANSWERS.name, key=foreign, value=b"\xc1"))
    replay = Asking(known=asking.log)
    assert (await replay.model.ask(prompt("a"))).usage.reused == 0


@pytest.mark.parametrize("reply", ["no JSON", "[1]", "[" * 100_000])
async def test_a_recorded_reply_that_no_model_of_ours_gave_is_asked_for_anew(reply: str) -> None:
    asking = Asking()
    request = ModelClient(asking.server).request(prompt("a"))
    await asking.log.produce(topics.ANSWERS.record(Answer(request=request, reply=reply)))
    replay = Asking(known=asking.log)
    again = await replay.model.ask(prompt("a"))
    assert (again.body, again.usage.reused) == (said(prompt("a")), 0)


async def test_a_record_that_could_not_be_read_is_read_when_it_is_next_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Asking()
    await original.model.ask(prompt("a"))
    await original.model.close()
    replay = Asking(known=original.log)

    async def is_away(_topic: str) -> int:
        raise TransientError("the broker is away")

    with monkeypatch.context() as outage:
        outage.setattr(original.log, "partitions", is_away)
        with pytest.raises(TransientError):
            await replay.model.ask(prompt("a"))
    assert (await replay.model.ask(prompt("a"))).usage.reused == 1
    await replay.model.close()


async def test_a_log_that_takes_nothing_keeps_no_more_than_some_answers_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking, opened, write = Asking(), asyncio.Event(), MemoryLog.produce

    async def late(log: MemoryLog, *outgoing: Outgoing) -> Sequence[int]:
        await opened.wait()
        return await write(log, *outgoing)

    monkeypatch.setattr(MemoryLog, "produce", late)
    monkeypatch.setattr(recorded, "MAX_WAITING", 1)
    await asking.model.ask(prompt("a"))
    second = asyncio.create_task(asking.model.ask(prompt("b")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not second.done()
    opened.set()
    await second
    await asking.model.close()
    assert len(await whole(asking.log, topics.ANSWERS)) == 2


async def test_an_error_is_no_answer() -> None:
    asking = Asking()

    def refuses(_: Prompt) -> Mapping[str, Any]:
        raise PoisonError("too rude")

    asking.server.answer = refuses
    with pytest.raises(PoisonError):
        await asking.model.ask(prompt("a"))
    await asking.model.close()
    assert not await whole(asking.log, topics.ANSWERS)
