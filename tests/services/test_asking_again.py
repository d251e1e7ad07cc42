"""What an operation rested on beside revoked reflections is asked about again: cut once, asked once, applied once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import PoisonError, TopicPartition
from combee.cli.shared.sending import commands_on
from combee.core.log.erasure.selector import Selector
from combee.core.log.replaying.selection import Selection
from combee.log.commands.playbook import PreparedCommand
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.model import Prompt
from combee_schemas.reflection import BulletTag
from support import ledger
from support.deployment import Deployment
from support.forgetting import forgotten, wish
from support.killed import killed_at_each_write
from support.ledger import NAME, dead_letters, outgoing, reflection
from support.models import ScriptedModel, together
from support.replaying import relearned

pytestmark = pytest.mark.usefixtures("quick_polls")
COUNT = 6


async def learned(small_batches: str = "one-call") -> Deployment:
    """Return a deployment whose only entry rests on six reflections."""
    deployment = Deployment(
        batch_size=COUNT, model=ScriptedModel(together), trust="lab", small_batches=small_batches
    )
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
    assert len(ledger.latest(deployment.log).entries) == 1
    return deployment


async def revoke(deployment: Deployment, *rules: str) -> PreparedCommand:
    commands = commands_on(deployment.log, deployment.clock)
    decision = await commands.revoke(NAME, rules)
    assert decision.command is not None
    await commands.send(decision.command)
    return decision


def over(deployment: Deployment, versions: int = 3) -> bool:
    return len(ledger.versions(deployment.log)) == versions and not ledger.behind(deployment.log)


def says(deployment: Deployment) -> list[tuple[str, set[str]]]:
    return [(entry.content, set(entry.evidence)) for entry in ledger.latest(deployment.log).entries]


LEFT = [(f"{' and '.join(f'lesson {n}' for n in (2, 3, 4, 5))}", {"r-2", "r-3", "r-4", "r-5"})]


async def test_the_others_are_asked_about_again_in_at_most_as_many_calls_as_were_foreseen() -> None:
    deployment = await learned()
    before = deployment.model.calls
    decision = await revoke(deployment, "r-0", "r-1")
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    first, second, third = ledger.versions(deployment.log)
    assert (len(first.entries), len(second.entries), len(second.again)) == (1, 0, 4)
    assert (says(deployment), third.again) == (LEFT, ())
    assert decision.outlook is not None
    assert decision.outlook.calls > deployment.model.calls - before == len(["group", "check"])
    batch = ledger.batches(deployment.log)[-1]
    assert (batch.plan.reason, batch.plan.reflect_usage.calls) == ("revoke", 0)
    assert {(member.reflection_id, member.attempt) for member in batch.members} == {
        (f"r-{n}", 1) for n in (2, 3, 4, 5)
    }
    found = await audit(deployment.log)
    assert (found.violations, found.applied, found.good) == ((), COUNT, True)


async def test_a_larger_part_is_dealt_into_groups_and_that_is_foreseen_too() -> None:
    deployment = await learned(small_batches="paper")
    before = deployment.model.calls
    decision = await revoke(deployment, "r-0")
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert decision.outlook is not None
    assert (
        decision.outlook.calls > deployment.model.calls - before == len(["group"] * 2 + ["combine", "check"])
    )


async def test_what_the_check_finds_nowhere_takes_all_calls_that_were_foreseen() -> None:
    deployment = await learned()
    before = deployment.model.calls

    def vague(prompt: Prompt) -> Mapping[str, Any]:
        return {"covered": [], "lost": []} if prompt.reply_name == "check" else together(prompt)

    deployment.model.answer, deployment.model.answers_checks = vague, False
    decision = await revoke(deployment, "r-0", "r-1")
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert decision.outlook is not None
    assert decision.outlook.calls == deployment.model.calls - before == len(["group", "check", "group"])
    assert says(deployment) == [(f"lesson {n}", {f"r-{n}"}) for n in (2, 3, 4, 5)]


async def test_tags_are_not_counted_twice() -> None:
    deployment = await learned()
    (entry,) = ledger.latest(deployment.log).entries
    async with deployment.running():
        shown = Shown(version=1, entry_ids=(entry.id,))
        tagged = {"bullet_tags": (BulletTag(id=entry.id, tag="helpful"),), "shown": shown}
        later = (reflection(n).model_copy(update=tagged) for n in range(10, 10 + COUNT))
        await deployment.log.produce(*map(outgoing, later))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        assert next(each.helpful for each in ledger.latest(deployment.log).entries) == COUNT
        await revoke(deployment, "r-10")
        await deployment.until(lambda: over(deployment, 4))
    assert next(each.helpful for each in ledger.latest(deployment.log).entries) == COUNT - 1


async def test_what_is_left_waits_no_longer_once_its_reflections_have_expired() -> None:
    deployment = await learned()
    await revoke(deployment, "r-0", "r-1")
    async with deployment.running(["publish"]):
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    partition = await deployment.log.partition_for(topics.REFLECTIONS.name, NAME.encode())
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=partition)
    deployment.log.expire(source, max(asked.offset for asked in ledger.latest(deployment.log).again))
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert says(deployment) == [("lesson 5", {"r-5"})]


async def test_the_others_are_asked_about_again_though_one_of_them_was_forgotten(tmp_path: Path) -> None:
    deployment = await learned()
    run = Selector(rules=(Selection("id", "r-2"),), kind="trace")
    left = MemoryLog(deployment.clock, partitions=deployment.partitions, scan_partitions=3)
    await forgotten(deployment.log, left, tmp_path, wish(run))
    deployment.log = left
    await revoke(deployment, "r-0", "r-1")
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert says(deployment) == [("lesson 3 and lesson 4 and lesson 5", {"r-3", "r-4", "r-5"})]


async def test_a_server_that_refuses_leaves_dead_letters_and_a_retry_teaches_them() -> None:
    deployment = await learned()

    def refuses(_prompt: Prompt) -> Mapping[str, Any]:
        raise PoisonError("refused")

    deployment.model.answer = refuses
    await revoke(deployment, "r-0", "r-1")
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert sorted(letter.record_id for letter in dead_letters(deployment.log)) == ["r-2", "r-3", "r-4", "r-5"]
    assert (await audit(deployment.log)).good


async def test_after_a_rollback_to_before_it_is_asked_once_more_and_counts_once() -> None:
    deployment = await learned()
    async with deployment.running():
        await revoke(deployment, "r-0", "r-1")
        await deployment.until(lambda: over(deployment))
        commands = commands_on(deployment.log, deployment.clock)
        decision = await commands.rollback(NAME, 1)
        assert decision.command is not None
        await commands.send(decision.command)
        await deployment.until(lambda: over(deployment, 5))
    assert says(deployment) == LEFT
    attempts = [batch.members[0].attempt for batch in ledger.batches(deployment.log)]
    assert attempts == [0, 1, 2]
    found = await audit(deployment.log)
    assert (found.violations, found.double, found.applied) == ((), 0, COUNT)


async def test_a_replay_asks_again_at_the_same_place() -> None:
    first = await learned()
    await revoke(first, "r-0", "r-1")
    async with first.running():
        await first.until(lambda: over(first))
    _, found = await relearned(first, batch_size=100, max_wait_s=1e9, small_batches="one-call", trust="lab")
    assert (found.versions, found.plans_differ, found.contents_differ) == (3, [], [])


async def asked_for() -> Deployment:
    deployment = await learned()
    await revoke(deployment, "r-0", "r-1")
    return deployment


@pytest.mark.parametrize("role", ["shuffle", "scan", "publish"])
async def test_killed_at_any_write_a_revocation_asks_again_once(role: str) -> None:
    points = 0
    async for at, deployment in killed_at_each_write(role, asked_for, over):
        assert [batch.plan.reason for batch in ledger.batches(deployment.log)] == ["size", "revoke"], at
        assert says(deployment) == LEFT, at
        assert (await audit(deployment.log)).good, at
        points = at
    assert points >= 2
