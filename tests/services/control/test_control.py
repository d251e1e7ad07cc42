import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from combee.adapters.ports import Outgoing
from combee.control.controller import Controller
from combee.core.batching.sizing.policy import SizingPolicy
from combee.core.playbook.versions import empty
from combee.process.worker.session import together
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.ledger import NAME, outgoing, reflection

PLATEAU = SizingPolicy(kind="plateau", candidates=(5, 10, 20))


@asynccontextmanager
async def controlling(deployment: Deployment, policy: SizingPolicy) -> AsyncIterator[Controller]:
    controller = Controller(deployment.log, deployment.clock, policy)
    session = controller.session(asyncio.Event(), lambda: None)
    work = asyncio.create_task(together(session, controller.playbooks.view.run(), controller.sizes.run()))
    try:
        yield controller
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def appear(deployment: Deployment, name: str, version: int = 1) -> None:
    playbook = empty(name).model_copy(update={"version": version})
    await deployment.log.produce(Outgoing(topic="playbooks", key=name.encode(), value=encode(playbook)))


async def applied(deployment: Deployment, sequence: int, size: int) -> None:
    """Publish the version that a full batch of a size made; it took size/10 + 1 seconds."""
    made = {"version": sequence, "batch_sequence": sequence, "origin": "batch", "close_reason": "size"}
    closed_at_ms = 1_700_000_000_000 + 60_000 * sequence
    times = {"closed_at_ms": closed_at_ms, "created_at_ms": closed_at_ms + 100 * size + 1000}
    playbook = flat(Playbook, name=NAME, batch_id="b", **made, **times, reflections=size, batch_size=size)
    await deployment.log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(playbook)))


def decisions(deployment: Deployment) -> list[BatchSize]:
    return ledger.messages(deployment.log, topics.BATCH_SIZES, BatchSize)


def sizes(deployment: Deployment) -> list[tuple[str, int]]:
    return [(one.playbook, one.batch_size) for one in decisions(deployment)]


async def test_every_playbook_that_appears_gets_the_configured_batch_size_once() -> None:
    deployment = Deployment()
    await appear(deployment, NAME)
    async with controlling(deployment, SizingPolicy(configured=84)):
        await deployment.until(lambda: len(sizes(deployment)) == 1)
        await appear(deployment, NAME, 2)
        await appear(deployment, "a")
        await deployment.until(lambda: len(sizes(deployment)) == 2)
    assert sizes(deployment) == [(NAME, 84), ("a", 84)]


async def test_what_is_to_be_decided_at_the_start_is_written_in_a_few_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment, calls = Deployment(), list[int]()
    for number in range(30):
        await appear(deployment, f"p{number}")
    produce = deployment.log.produce

    async def counted(*records: Outgoing) -> Sequence[int]:
        calls.append(len(records))
        return await produce(*records)

    monkeypatch.setattr(deployment.log, "produce", counted)
    async with controlling(deployment, SizingPolicy(configured=84)):
        await deployment.until(lambda: len(sizes(deployment)) == 30)
    assert sum(calls) == 30
    assert len(calls) <= 2


async def test_what_stands_is_not_said_again_and_a_new_size_is() -> None:
    deployment = Deployment()
    await appear(deployment, NAME)
    async with controlling(deployment, SizingPolicy(configured=84)):
        await deployment.until(lambda: len(sizes(deployment)) == 1)
    async with controlling(deployment, SizingPolicy(configured=84)):
        await appear(deployment, "a")
        await deployment.until(lambda: len(sizes(deployment)) == 2)
    async with controlling(deployment, SizingPolicy(configured=40)):
        await deployment.until(lambda: len(sizes(deployment)) == 4)
    assert sorted(sizes(deployment)) == [("a", 40), ("a", 84), (NAME, 40), (NAME, 84)]


def is_decided(deployment: Deployment, sequence: int) -> bool:
    return any(one.sequence == sequence for one in decisions(deployment))


async def profile(deployment: Deployment, versions: Sequence[tuple[int, int]]) -> None:
    for sequence, size in versions:
        await applied(deployment, sequence, size)
        await deployment.until(partial(is_decided, deployment, sequence))


async def test_profiling_ends_in_a_choice_with_its_reason_and_its_numbers() -> None:
    deployment = Deployment()
    async with controlling(deployment, PLATEAU):
        await profile(deployment, [(1, 5), (2, 10), (3, 20)])
    assert [one.batch_size for one in decisions(deployment)][:2] == [10, 20]
    last = decisions(deployment)[-1]
    assert (last.phase, [one.delay_s for one in last.observations]) == ("settled", [1.5, 2.0, 3.0])
    assert "larger batches save little" in last.reason
    assert {"A", "alpha", "r_squared", "tau", "plateau", "arrivals_per_s"} == set(last.numbers) - {"slowness"}


async def test_a_restarted_controller_goes_on_where_it_was_with_what_it_missed() -> None:
    deployment, unbroken = Deployment(), Deployment()
    async with controlling(unbroken, PLATEAU):
        await profile(unbroken, [(1, 5), (2, 10), (3, 20), (4, 33)])
    async with controlling(deployment, PLATEAU):
        await profile(deployment, [(1, 5)])
    await applied(deployment, 2, 10)
    await applied(deployment, 3, 20)
    async with controlling(deployment, PLATEAU):
        await profile(deployment, [(4, 33)])
    assert decisions(deployment) == decisions(unbroken)


async def test_two_controllers_at_once_come_to_what_one_does() -> None:
    deployment, alone = Deployment(), Deployment()
    versions = [(1, 5), (2, 10), (3, 20), (4, 33)]
    async with controlling(alone, PLATEAU):
        await profile(alone, versions)
    async with controlling(deployment, PLATEAU), controlling(deployment, PLATEAU):
        await profile(deployment, versions)
    async with controlling(deployment, PLATEAU):
        await profile(deployment, [(5, 33)])
    assert {one.sequence: one for one in decisions(deployment)}.items() >= {
        one.sequence: one for one in decisions(alone)
    }.items()


async def test_a_controller_that_lags_goes_on_from_what_another_decided() -> None:
    deployment = Deployment()
    async with controlling(deployment, PLATEAU) as controller:
        await profile(deployment, [(1, 5)])
        ahead = decisions(deployment)[-1].model_copy(update={"sequence": 9, "batch_size": 20})
        await deployment.log.produce(topics.BATCH_SIZES.record(ahead))
        await deployment.until(lambda: controller.sizes.get(NAME) == ahead)
        await applied(deployment, 2, 10)
        await profile(deployment, [(10, 20)])
    assert [one.sequence for one in decisions(deployment)] == [1, 9, 10]


async def test_a_decision_is_dated_when_size_or_phase_changes() -> None:
    deployment = Deployment()
    async with controlling(deployment, PLATEAU):
        await profile(deployment, [(1, 5), (2, 10), (3, 20)])
        settled_at_ms = decisions(deployment)[-1].decided_at_ms
        deployment.clock.advance(60)
        await profile(deployment, [(4, 40)])
    assert (decisions(deployment)[-1].sequence, decisions(deployment)[-1].decided_at_ms) == (4, settled_at_ms)


async def test_batches_that_measure_nothing_end_the_profile_and_stop_nothing() -> None:
    # The clock stands still: every batch takes no time, so none is a measurement.
    deployment = Deployment(batch_size=10)
    async with controlling(deployment, PLATEAU), deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(60)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 60)
        await deployment.until(lambda: decisions(deployment)[-1].phase == "settled")
    assert decisions(deployment)[-1].batch_size == 5
    assert "0 of 3 candidates measured" in decisions(deployment)[-1].reason
