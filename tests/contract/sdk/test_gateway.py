"""The SDK through the gateway: the same client, over HTTP."""

from collections.abc import AsyncIterator

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.sdk import AsyncClient, PlaybookView, Reflection, learning
from combee_schemas import topics
from combee_schemas.trace import Trace
from support.gateway import labelled, published, served, version
from support.ledger import messages
from support.waiting import until

NAME = "support/refunds"
DEADLINE_S = 10.0
KEY = "k" * 24
BOTH = f'[{{"name": "agent", "key": "{KEY}", "scopes": ["reflections:write", "playbooks:read"]}}]'


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(SystemClock())


@pytest.fixture
async def address(log: MemoryLog) -> AsyncIterator[str]:
    await published(log, *(version(NAME, number) for number in (1, 2, 3)))
    await labelled(log, NAME, "production", 1)
    async with served(log) as (where, _):
        yield where


async def test_what_is_sent_is_in_the_log_when_it_counts_as_delivered(address: str, log: MemoryLog) -> None:
    async with AsyncClient(address) as client:
        for number in range(250):
            client.publish(Reflection(reflection_id=f"r-{number}", playbook=NAME, key_insight="x"))
        client.trace(NAME, "task", answer="42")
        assert (await client.flush()).delivered == 251
    assert len(messages(log, topics.REFLECTIONS, Reflection)) == 250
    assert [one.answer for one in messages(log, topics.TRACES, Trace)] == ["42"]


async def test_playbooks_labels_and_versions_are_read_and_pushed(address: str, log: MemoryLog) -> None:
    heard: list[PlaybookView] = []
    async with AsyncClient(address) as client:
        assert (await client.playbook(NAME)).labels == ("latest",)
        assert (await client.playbook(NAME, label="production")).version == 1
        assert (await client.playbook(NAME, version=2)).version == 2
        assert (await client.playbook("support/unknown", fallback="f")).is_fallback
        client.on_update(NAME, heard.append)
        client.on_update(NAME, heard.append, label="production")
        await published(log, version(NAME, 4))
        await labelled(log, NAME, "production", 4)
        await until(lambda: sorted(one.version for one in heard) == [1, 3, 4, 4])
        assert (await client.playbook(NAME)).labels == ("latest", "production")


async def test_who_reads_a_branch_publishes_for_its_playbook_and_names_the_line(
    address: str, log: MemoryLog
) -> None:
    line = f"{NAME}@exp"
    await published(log, version(line, 1, "said on the branch"))
    heard: list[PlaybookView] = []
    async with AsyncClient(address) as client:
        client.on_update(line, heard.append)
        async with learning(line, client=client, task="t") as run:
            assert "said on the branch" in run.playbook.prompt()
            run.outcome("done")
        client.publish(playbook=line, key_insight="x")
        await published(log, version(line, 2))
        await until(lambda: [each.version for each in heard] == [1, 2])
        assert (await client.flush()).is_complete
    (trace,) = messages(log, topics.TRACES, Trace)
    assert trace.shown is not None
    assert (trace.playbook, trace.shown.line, trace.shown.version) == (NAME, line, 1)
    assert [each.playbook for each in messages(log, topics.REFLECTIONS, Reflection)] == [NAME]


async def test_a_playbook_that_does_not_exist_yet_is_pushed_when_it_does(
    address: str, log: MemoryLog
) -> None:
    heard: list[PlaybookView] = []
    async with AsyncClient(address) as client:
        client.on_update("support/new", heard.append)
        assert (await client.playbook("support/new", fallback="f")).is_fallback
        await published(log, version("support/new", 1))
        await until(lambda: [one.version for one in heard] == [1])


async def test_a_gateway_that_comes_back_gets_what_waited_and_pushes_again(log: MemoryLog) -> None:
    async with served(log) as (address, _):
        port = int(address.rpartition(":")[2])
        client = AsyncClient(address)
        assert (await client.playbook(NAME, fallback="f")).is_fallback
    client.publish(playbook=NAME, key_insight="while it is away")
    assert (await client.flush(timeout_s=0.2)).waiting == 1
    async with served(log, gateway_port=port):
        assert (await client.flush(timeout_s=DEADLINE_S)).is_complete
        await published(log, version(NAME, 1))
        heard: list[PlaybookView] = []
        client.on_update(NAME, heard.append)
        await until(lambda: [one.version for one in heard] == [1])
        await client.close()


async def test_a_key_opens_and_a_wrong_one_names_the_remedy(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(log, gateway_keys=BOTH) as (address, _):
        async with AsyncClient(address, api_key=KEY) as client:
            client.publish(playbook=NAME, key_insight="x")
            assert (await client.flush()).is_complete
        stranger = AsyncClient(address, api_key="wrong")
        stranger.publish(playbook=NAME, key_insight="x")
        assert (await stranger.flush(timeout_s=0.3)).waiting == 1
        assert (await stranger.close(timeout_s=0.1)).waiting == 1
    assert "COMBEE_GATEWAY_KEY" in caplog.text
    assert KEY not in caplog.text
