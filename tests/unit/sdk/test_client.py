"""A client never raises into an agent, answers after it was closed, and can be awaited."""

import math
import threading
from typing import Any

import pytest

import combee as package
from combee.sdk import (
    AsyncClient,
    Client,
    MemoryTransport,
    PlaybookView,
    learning,
)
from combee_schemas.base import Shown, Source
from support.sdk import DEADLINE_S, NAME, SilentTransport, UnreliableTransport, reflection, until


def test_values_of_wrong_types_never_raise_into_an_agent(client: Client, memory: UnreliableTransport) -> None:
    wrong: Any = {"playbook": NAME, "key_insight": "x"}
    assert client.publish(wrong) == ""
    assert client.publish("text") == ""  # type: ignore[arg-type]
    client.trace(NAME, "task", metadata=5)  # type: ignore[arg-type]
    client.trace(NAME, "task", metadata=[("a",)])  # type: ignore[arg-type]
    client.trace(NAME, "held", trace_id="t-1", outcome_within_s=60)
    client.outcome(["t-1"])  # type: ignore[arg-type]
    assert client.counts.dropped == 5

    client.trace(NAME, "at once", outcome_within_s="5")  # type: ignore[arg-type]
    client.outcome("t-1", 0.75, success="yes")  # type: ignore[arg-type]
    assert client.flush().delivered == 2
    assert [one.feedback for one in memory.traces] == ["", "The run succeeded. 0.75"]


def test_a_runs_values_reach_the_trace(client: Client, memory: UnreliableTransport) -> None:
    client.trace(
        NAME, "task", score=0.5, success=False, bullet_ids=["misc-00001"], source=Source(name="shop")
    )
    client.trace(NAME, "held", trace_id="t-2", outcome_within_s=60)
    client.outcome("t-2", success=True)
    with learning(NAME, client=client, task="within") as run:
        run.outcome(success=True, score={"accuracy": 0.75})
    client.trace(NAME, "task", score=object())  # type: ignore[arg-type]
    client.trace(NAME, "task", bullet_ids=None)  # type: ignore[arg-type]
    assert client.flush().delivered == 3
    assert client.counts.dropped == 2
    first, held, within = memory.traces
    assert (first.score, first.success, first.bullet_ids) == ({"score": 0.5}, False, ("misc-00001",))
    assert (first.source, held.success) == (Source(name="shop"), True)
    assert (within.score, within.success) == ({"accuracy": 0.75}, True)


def test_an_outcome_after_the_client_was_closed_is_dropped_with_that_reason(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.trace(NAME, "held", trace_id="t-3", outcome_within_s=60)
    client.close()
    client.outcome("t-3", success=True)
    assert client.counts.dropped == 1
    assert "a message was dropped: the client is closed" in caplog.text
    assert "has no held trace" not in caplog.text


WRONG: tuple[Any, ...] = (None, 7, -1.5, math.nan, math.inf, ["a"], {"a": 1}, b"a", object(), "", "no name!")


@pytest.mark.parametrize("wrong", WRONG, ids=[f"{type(one).__name__}-{n}" for n, one in enumerate(WRONG)])
def test_no_public_method_raises_whatever_it_is_given(client: Client, wrong: Any) -> None:
    client.ready()
    view = client.playbook(wrong, label=wrong, version=wrong, fallback=wrong, timeout_s=0.01)
    assert (view.is_fallback, view.shown(), type(view.render())) == (True, Shown(version=0), str)
    assert "be brief" in client.playbook(wrong, fallback="be brief", timeout_s=0.01).prompt()
    assert client.playbook(NAME, label=wrong, fallback="f", timeout_s=0.01).render() == "f"
    client.on_update(wrong, wrong, label=wrong)()
    client.on_update(NAME, wrong)()
    for arguments in (
        {"reflection": wrong},
        {"playbook": wrong, "key_insight": wrong},
        {"key_insight": wrong},
    ):
        client.publish(**arguments)
    client.trace(wrong, wrong, trajectory=wrong, answer=wrong, feedback=wrong, target=wrong, shown=wrong)
    client.trace(NAME, "t", agent=wrong, metadata=wrong, trace_id=wrong, outcome_within_s=wrong)
    client.trace(NAME, "t", trace_id="t-1", outcome_within_s=60)
    client.outcome("t-1", wrong, success=wrong, target=wrong, answer=wrong)
    client.outcome(wrong)
    with learning(wrong, client=client, label=wrong, fallback=wrong, task=wrong) as run:
        run.step(wrong, wrong)
        run.outcome(wrong, success=wrong, target=wrong, answer=wrong)
        run.playbook.prompt()
    client.flush(timeout_s=wrong if wrong != math.inf else 1)
    client.ready(timeout_s=wrong)
    assert client.close(timeout_s=wrong).waiting == 0


@pytest.mark.parametrize("wrong", [["a"], None, math.nan], ids=repr)
async def test_no_public_method_of_the_async_client_raises_either(wrong: Any) -> None:
    async with AsyncClient(transport=MemoryTransport) as combee:
        view = await combee.playbook(wrong, label=wrong, version=wrong, timeout_s=wrong)
        assert view.is_fallback
        combee.on_update(wrong, wrong)()
        await combee.flush(wrong)
        await combee.ready(wrong)
        await combee.close(wrong)


def test_a_closed_client_drops_and_still_reads(memory: UnreliableTransport) -> None:
    memory.put_playbook(NAME, "be kind")
    client = Client(transport=lambda: memory)
    assert client.playbook(NAME).version == 1
    client.close()
    client.publish(reflection(1))
    assert client.counts.dropped == 1
    assert client.playbook(NAME).version == 1
    assert client.playbook("never asked for", fallback="f").render() == "f"
    assert not client.ready()
    assert client.flush().dropped == 1
    assert client.close().dropped == 1


def test_who_waits_while_the_client_is_closed_gets_an_answer() -> None:
    client = Client(transport=SilentTransport)
    found: list[PlaybookView] = []
    waiting = threading.Thread(target=lambda: found.append(client.playbook(NAME, fallback="f", timeout_s=60)))
    waiting.start()
    until(lambda: len(client._reader._requested) == 1)
    client.close(timeout_s=0.1)
    waiting.join(DEADLINE_S)
    assert [one.render() for one in found] == ["f"]


async def test_the_async_client_does_the_same(memory: UnreliableTransport) -> None:
    memory.put_playbook(NAME, "be kind")
    heard: list[int] = []

    async def hear(view: PlaybookView) -> None:
        heard.append(view.version)

    async with AsyncClient(transport=lambda: memory) as client:
        assert await client.ready(timeout_s=30)
        assert (await client.playbook(NAME)).version == 1
        client.on_update(NAME, hear)
        client.publish(reflection(1))
        assert (await client.flush()).delivered == 1
        async with learning(NAME, client=client) as run:
            run.task = "task"
        assert (await client.flush()).delivered == 2
        assert (await client.playbook(NAME, version=7)).is_fallback
    assert heard == [1]
    assert [one.task for one in memory.traces] == ["task"]


def test_a_name_that_is_not_there_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        _ = package.Klient
