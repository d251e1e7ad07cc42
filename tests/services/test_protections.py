"""Each protection seen to matter: with its code path taken out, the checker names the promise that breaks."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from combee.adapters.memory.transactor import MemoryTransaction, MemoryTransactor
from combee.adapters.ports import FencedError, Outgoing, Record, TopicPartition
from combee.core.log.watermark import Watermark
from combee.log.inspection import audit
from combee.publish import decide as decide_module
from combee.publish.basis import Basis, PublishDecision
from combee.publish.decide import next_version
from combee.scan.nodes import Answered
from combee.shuffle.attempts import Attempts
from combee.shuffle.partition import COMMANDS, REFLECTIONS, Manifests, ShuffleState
from combee_schemas import topics
from combee_schemas.dead_letter import Attempt, LetterId, attempt_headers
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from support import ledger
from support.deployment import ROLES, Deployment, answered_again
from support.failpoints.points import CrashError, CrashFailpoint
from support.faults.checker import Place, violations
from support.ledger import NAME, outgoing, records, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCH = 10
Story = Callable[[Deployment], Coroutine[Any, Any, dict[str, Place]]]
Switch = Callable[[pytest.MonkeyPatch], None]


async def publish(deployment: Deployment, reflections: Sequence[Reflection]) -> dict[str, Place]:
    """Publish, and return what was acknowledged."""
    number = await deployment.log.partition_for(REFLECTIONS, NAME.encode())
    offsets = await deployment.log.produce(*map(outgoing, reflections))
    return {
        one.reflection_id: Place(topic=REFLECTIONS, partition=number, offset=at)
        for one, at in zip(reflections, offsets, strict=True)
    }


def some(first: int, end: int) -> list[Reflection]:
    return [reflection(number) for number in range(first, end)]


async def finish(deployment: Deployment, wanted: int) -> None:
    """Run everything until so many are applied and all is committed, or until that will never be."""

    def done() -> bool:
        return ledger.applied(deployment.log) >= wanted and not ledger.behind(deployment.log)

    async with deployment.running():
        for _ in range(8):
            deployment.advance(25)
            with suppress(TimeoutError):
                await deployment.until(done, 0.05)
                return


# ---- the stories: each ends well, and only because of one protection


async def published_twice(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    await finish(deployment, BATCH)
    await publish(deployment, some(0, BATCH))
    await finish(deployment, BATCH)
    return acked


async def killed_with_a_window_open(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH + 3))
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == BATCH)
    await finish(deployment, BATCH + 3)
    return acked


async def killed_with_calls_open(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.until(lambda: deployment.model.calls == 3)
        await deployment.log.produce(Outgoing(topic=topics.COMMANDS.name, key=b"k", value=b"\xc1"))
        await deployment.until(lambda: bool(ledger.dead_letters(deployment.log)))
    deployment.model.gate.set()
    await finish(deployment, BATCH)
    return acked


async def zombie_beside_its_successor(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH // 2))
    window = deployment.running(["shuffle"])
    async with window:
        await deployment.until(lambda: waiting(deployment) == BATCH // 2)
        zombie, others = deployment.shuffler, [role for role in ROLES if role != "shuffle"]
        async with deployment.running(["shuffle"]), deployment.running(others):
            await deployment.until(
                lambda: deployment.shuffler is not zombie and waiting(deployment) == BATCH // 2
            )
            acked |= await publish(deployment, some(BATCH // 2, BATCH))
            with suppress(FencedError):
                await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
    await finish(deployment, BATCH)
    return acked


def waiting(deployment: Deployment) -> int:
    """Return how many reflections wait in the windows of the newest shuffler."""
    states = deployment.shuffler._states.values() if deployment.shuffler else ()
    return sum(len(window.waiting) for state in states for window in state.windows.values())


async def killed_between_manifest_and_groups(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    failpoint = CrashFailpoint(point="sent in transaction")
    with suppress(CrashError):
        async with deployment.running(["shuffle"], failpoint=failpoint):
            await deployment.until(lambda: failpoint.dead)
    await finish(deployment, BATCH)
    return acked


async def killed_before_its_results_are_committed(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: bool(ledger.batches(deployment.log)))
    await answered_again(deployment)
    await finish(deployment, BATCH)
    return acked


async def update_delivered_twice(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    await finish(deployment, BATCH)
    (update,) = records(deployment.log, topics.UPDATES)
    await deployment.log.produce(Outgoing(topic=update.topic, key=update.key, value=update.value))
    await finish(deployment, BATCH)
    return acked


async def claimed_to_be_a_retry(deployment: Deployment) -> dict[str, Place]:
    acked = await publish(deployment, some(0, BATCH))
    await finish(deployment, BATCH)
    claim = attempt_headers(Attempt(number=1, letter=LetterId(partition=0, offset=0)))
    await deployment.log.produce(*(replace(outgoing(one), headers=claim) for one in some(0, BATCH)))
    await finish(deployment, BATCH)
    return acked


# ---- the switches: each takes one protection out of the code


def no_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Manifests, "knows", lambda *_: False)


def commit_all_that_was_read(patch: pytest.MonkeyPatch) -> None:
    def low(state: ShuffleState) -> dict[str, int]:
        return {name: state.seen[name] + 1 for name in (REFLECTIONS, COMMANDS)}

    patch.setattr(ShuffleState, "low", low)


def commit_all_that_was_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watermark, "low", property(lambda mark: mark.next))


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    named = MemoryTransactor.__init__

    def unnamed(transactor: MemoryTransactor, store: Any, name: str) -> None:
        named(transactor, store, f"{name}-{uuid4()}")

    patch.setattr(MemoryTransactor, "__init__", unnamed)


def no_atomicity(patch: pytest.MonkeyPatch) -> None:
    async def send(transaction: MemoryTransaction, *outgoing: Outgoing) -> Sequence[int]:
        try:
            return [transaction._store.write(one) for one in outgoing]
        finally:
            transaction._store.notify()

    patch.setattr(MemoryTransaction, "send", send)


def no_look_at_results(patch: pytest.MonkeyPatch) -> None:
    async def restore(_self: Answered, _log: object, _starts: dict[TopicPartition, int]) -> None:
        return

    patch.setattr(Answered, "restore", restore)


def apply_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    def apply(basis: Basis, update: Update) -> PublishDecision:
        return next_version(basis, update, None)

    patch.setattr(decide_module, "decide_update", apply)


def believe_every_claim(patch: pytest.MonkeyPatch) -> None:
    async def claimed(
        _self: Attempts, claim: Attempt, _record: Record, reflection: Reflection
    ) -> tuple[int, str]:
        return claim.number, reflection.playbook

    patch.setattr(Attempts, "proven", claimed)


PROTECTIONS: dict[str, tuple[Story, Switch, str]] = {
    "ids are remembered": (published_twice, no_ids, "ledger: double"),
    "an open window is not committed": (killed_with_a_window_open, commit_all_that_was_read, "ledger: lost"),
    "an open call is not committed": (killed_with_calls_open, commit_all_that_was_begun, "10 pending"),
    "a zombie is fenced": (zombie_beside_its_successor, no_fencing, "ledger: batch sequence"),
    "manifest, groups and offsets are one": (killed_between_manifest_and_groups, no_atomicity, "10 pending"),
    "results are looked up": (
        killed_before_its_results_are_committed,
        no_look_at_results,
        "calls: 5 repeated",
    ),
    "an attempt is proven": (claimed_to_be_a_retry, believe_every_claim, "ledger: attempt"),
    "an update counts once": (update_delivered_twice, apply_whatever_comes, "publishes batch 1 again"),
}


async def judged(story: Story, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(audit, "AGAIN_S", 0.0)
    deployment = Deployment(batch_size=BATCH, fan_in=2, max_wait_s=20)
    acked = await story(deployment)
    prompts = [(prompt.system, prompt.user) for prompt in deployment.model.prompts]
    # These two kill scan while calls are open: by the gate, and when the zombie is told.
    in_flight = 3 if story in (killed_with_calls_open, zombie_beside_its_successor) else 0
    return await violations(
        deployment.log,
        acked=acked,
        repeated_calls=len(prompts) - len(set(prompts)),
        allowed_repeats=in_flight,
    )


@pytest.mark.parametrize("name", PROTECTIONS)
async def test_protection_keeps_the_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, _, _ = PROTECTIONS[name]

    assert await judged(story, monkeypatch) == []


@pytest.mark.parametrize("name", PROTECTIONS)
async def test_without_the_protection_the_checker_names_what_broke(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, switch_off, named = PROTECTIONS[name]
    switch_off(monkeypatch)

    found = await judged(story, monkeypatch)

    assert any(named in one for one in found), found
