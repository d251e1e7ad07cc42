"""Every line of a playbook asks again by itself what it lost in a revocation, through forks and adoptions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import PoisonError
from combee.core.commands import RefusedError
from combee.core.playbook import side_by_side
from combee.log.commands import dead_letters
from combee.log.commands.revocation import Outlook
from combee.log.evidence import with_revoked
from combee.log.inspection.audit import audit
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.scan import Operation, OperationKind
from support import ledger
from support.archives import archived, restored
from support.branches import (
    BATCH,
    DELETE,
    FORK,
    LINE,
    ahead,
    carried_out,
    commands,
    contents,
    first,
    forked,
    learned,
    publish,
)
from support.deployment import Deployment
from support.killed import killed_at_each_write
from support.ledger import NAME, outgoing
from support.models import ScriptedModel, is_control, together

pytestmark = pytest.mark.usefixtures("quick_polls")
LINES = (NAME, LINE)
ALL, LEFT, NEWS = "lesson 0 and lesson 1 and lesson 2", "lesson 1 and lesson 2", "lesson 10 and lesson 11"

BOTH, MINE = "lesson 1 and lesson 11 and lesson 2", "by hand"


def by_hand(line: str) -> Command:
    operation = Operation(kind=OperationKind.ADD, section="OTHERS", content=MINE)
    return Command(command_id="e", playbook=line, kind="edit", operations=(operation,))


async def revoke(deployment: Deployment, *ids: str) -> Outlook:
    decision = await commands(deployment).revoke(NAME, ids)
    await carried_out(deployment, decision)
    assert decision.outlook is not None
    return decision.outlook


def asked(deployment: Deployment, line: str) -> list[list[tuple[str, int]]]:
    """Return the reflections and attempts of the batches of a line that ask again."""
    return [
        [(member.reflection_id, member.attempt) for member in batch.members]
        for batch in ledger.batches(deployment.log, line)
        if batch.plan.reason == "revoke"
    ]


def wanted(deployment: Deployment, line: str = NAME) -> list[int]:
    return sorted(each.offset for each in ledger.latest(deployment.log, line).again)


async def settled(deployment: Deployment) -> None:
    """Wait until nothing is to be asked again, and each batch has its version."""
    await deployment.until(
        lambda: (
            not any(
                wanted(deployment, line)
                or ledger.latest(deployment.log, line).batch_sequence
                < ledger.batches(deployment.log, line)[-1].plan.sequence
                for line in LINES
            )
        )
    )


async def test_each_line_asks_in_its_own_way_in_at_most_as_many_calls_as_were_foreseen() -> None:
    deployment = await forked(model=ScriptedModel(together), trust="lab")
    before = deployment.model.calls
    async with deployment.running():
        outlook = await revoke(deployment, "r-0")
        await settled(deployment)
    assert [asked(deployment, line) for line in LINES] == [[[("r-1", 1), ("r-2", 1)]]] * 2
    assert [contents(deployment, line) for line in LINES] == [{LEFT}] * 2
    foreseen = outlook.calls + sum(each.calls for each in outlook.branches)
    assert foreseen > deployment.model.calls - before == len(LINES) * len(["group", "check"])
    prompts = [ledger.batches(deployment.log, line)[-1].plan.settings.prompts for line in LINES]
    assert prompts == ["full", "small"]
    assert side_by_side.learned(ledger.versions(deployment.log, LINE)).reflections == 0, "nothing new"
    assert (await audit(deployment.log)).good


async def test_a_fork_takes_over_what_is_still_to_be_asked() -> None:
    deployment = await learned(model=ScriptedModel(together), trust="lab")
    async with deployment.running(["publish"]):
        await revoke(deployment, "r-0")
    await deployment.log.produce(outgoing(FORK))
    async with deployment.running():
        await deployment.until(lambda: bool(ledger.versions(deployment.log, LINE)))
        await settled(deployment)
    assert [each.offset for each in first(deployment).again] == [1, 2]
    assert [contents(deployment, line) for line in LINES] == [{LEFT}] * 2
    assert (await audit(deployment.log)).good


async def test_an_adoption_takes_over_what_the_playbook_s_next_batches_do_not_ask_anyway() -> None:
    deployment = await ahead(range(10, 14), model=ScriptedModel(together), trust="lab")
    async with deployment.running():
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    async with deployment.running(["publish"]):
        await revoke(deployment, "r-0", "r-12")
        assert [wanted(deployment, line) for line in LINES] == [[1, 2, 3, 4], [1, 2, 6]]
        await carried_out(deployment, await commands(deployment).adopt(NAME, LINE))
        assert wanted(deployment) == [1, 2]
    async with deployment.running():
        await settled(deployment)
        await publish(deployment, [14, 15])
        await deployment.until(lambda: len(contents(deployment)) == 3)
    assert contents(deployment) == {LEFT, NEWS, "lesson 13 and lesson 14 and lesson 15"}
    async with deployment.running(["publish"]):
        await revoke(deployment, "r-1")
    assert wanted(deployment) == [2], "and what the playbook has asked since is not asked once more"
    assert (await audit(deployment.log)).good


async def test_what_failed_when_a_branch_asked_again_it_has_not_read() -> None:
    """The playbook had asked again, too, and what came of it was gone with the adoption."""

    def unusable_there(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.owner == LINE or is_control(prompt):
            raise PoisonError("no usable reply")
        return together(prompt)

    deployment = await forked(model=ScriptedModel(together), trust="lab")
    deployment.model = ScriptedModel(unusable_there)
    async with deployment.running():
        await revoke(deployment, "r-0")
        await settled(deployment)
    assert [contents(deployment, line) for line in LINES] == [{LEFT}, set()]
    deployment.model = ScriptedModel(together)
    failed = await ledger.stored_letters(deployment.log)
    async with deployment.running():
        with pytest.raises(RefusedError, match=r"has not read 2 reflections.*dead letters"):
            await commands(deployment).adopt(NAME, LINE)
        await dead_letters.resend(deployment.log, deployment.clock, failed, {})
        await deployment.until(lambda: contents(deployment, LINE) == {LEFT})
        await deployment.log.produce(outgoing(by_hand(LINE)))
        await deployment.until(lambda: MINE in contents(deployment, LINE))
        await carried_out(deployment, await commands(deployment).adopt(NAME, LINE))
    assert contents(deployment) == {LEFT, MINE}


async def test_what_a_branch_asked_again_is_adopted_and_not_asked_once_more() -> None:
    deployment = await ahead(model=ScriptedModel(together), trust="lab")
    async with deployment.running():
        await revoke(deployment, "r-0", "r-10")
        await settled(deployment)
        await carried_out(deployment, await commands(deployment).adopt(NAME, LINE))
        assert contents(deployment) == {BOTH}
        await settled(deployment)
    assert len(asked(deployment, NAME)) == 1
    assert (await audit(deployment.log)).good


async def test_an_entry_under_another_id_since_its_adoption_loses_what_a_revoked_reflection_shared() -> None:
    deployment = await forked(model=ScriptedModel(together), trust="lab")
    async with deployment.running():
        await deployment.log.produce(outgoing(by_hand(NAME)))
        await publish(deployment, [10, 11])
        await deployment.until(lambda: contents(deployment, LINE) == {ALL, NEWS})
        await carried_out(deployment, await commands(deployment).adopt(NAME, LINE))
        adopted = ledger.latest(deployment.log).adopted
        assert adopted is not None
        assert adopted.renamed
        await revoke(deployment, "r-10")
    assert contents(deployment) == {ALL}


async def test_a_branch_that_learns_no_more_asks_nothing_again() -> None:
    deployment = await ahead(model=ScriptedModel(together), trust="lab")
    async with deployment.running():
        await deployment.log.produce(outgoing(DELETE))
        await revoke(deployment, "r-0")
        await carried_out(deployment, await commands(deployment).rollback(LINE, 2))
        assert (contents(deployment, LINE), wanted(deployment, LINE)) == ({NEWS}, [])
        (there,) = (await revoke(deployment, "r-10")).branches
        assert [each.kind for each in there.mixed("dropped")] == ["ADD", "ADD"]
        assert (there.mixed("again"), there.calls) == ([], 0)
        assert there.why_dropped == "this branch learns no more"
        await settled(deployment)
    assert (contents(deployment, LINE), asked(deployment, LINE)) == (set(), [])
    assert contents(deployment) == {LEFT}
    assert (await audit(deployment.log)).good


async def test_nor_does_it_ask_what_it_was_still_to_ask_when_it_was_deleted() -> None:
    deployment = await ahead(model=ScriptedModel(together), trust="lab")
    async with deployment.running(["publish"]):
        await revoke(deployment, "r-0")
        assert wanted(deployment, LINE) == [1, 2]
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: ledger.versions(deployment.log, LINE)[-1].origin == "delete")
        await carried_out(deployment, await commands(deployment).rollback(LINE, 3))
    assert (contents(deployment, LINE), wanted(deployment, LINE)) == ({NEWS}, [])


async def test_a_server_that_refuses_leaves_dead_letters_of_each_line() -> None:
    deployment = await forked(model=ScriptedModel(together), trust="lab")

    def refuses(_prompt: Prompt) -> Mapping[str, Any]:
        raise PoisonError("refused")

    deployment.model.answer = refuses
    async with deployment.running():
        await revoke(deployment, "r-0")
        await settled(deployment)
    letters = sorted((each.playbook, each.record_id) for each in ledger.dead_letters(deployment.log))
    assert letters == [(line, f"r-{n}") for line in LINES for n in (1, 2)]
    assert (await audit(deployment.log)).good


async def test_a_branch_that_comes_back_knows_all_that_a_rule_meant_each_time() -> None:
    deployment = await ahead()
    rule = Command(
        command_id="1", playbook=NAME, kind="revoke", reflection_ids=("r-0",), rules=("text:lesson",)
    )
    again = rule.model_copy(update={"command_id": "2", "reflection_ids": ("r-1",)})
    async with deployment.running(["publish"]):
        await deployment.log.produce(outgoing(rule), outgoing(DELETE), outgoing(again))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        await carried_out(deployment, await commands(deployment).rollback(LINE, 2))
        await deployment.log.produce(outgoing(by_hand(LINE)))
        await deployment.until(lambda: MINE in contents(deployment, LINE))
    line = ledger.latest(deployment.log, LINE)
    assert line.revoked == ()
    assert (await with_revoked(deployment.log, line)).revoked == ("r-0", "r-1")


@pytest.mark.parametrize("partitions", [2, 3])
async def test_what_is_still_to_be_asked_moves_with_an_archive(tmp_path: Path, partitions: int) -> None:
    deployment = Deployment(batch_size=BATCH, model=ScriptedModel(together), trust="lab")
    async with deployment.running():
        for name in ("a", "b", "c", "d", NAME):
            await publish(deployment, range(BATCH), playbook=name)
            await deployment.until(lambda: bool(ledger.versions(deployment.log, name)))  # noqa: B023
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: bool(ledger.versions(deployment.log, LINE)))
    async with deployment.running(["publish"]):
        await revoke(deployment, "r-0")
    await archived(deployment.log, tmp_path / "archive", playbook=NAME)
    moved = Deployment(batch_size=BATCH, partitions=partitions, model=ScriptedModel(together), trust="lab")
    await restored(tmp_path / "archive", moved.log)
    assert [wanted(moved, line) for line in LINES] == [[1, 2]] * 2 != [wanted(deployment)] * 2
    async with moved.running():
        await settled(moved)
    assert [contents(moved, line) for line in LINES] == [{LEFT}] * 2
    assert (await audit(moved.log)).good


async def under_way() -> Deployment:
    deployment = await forked(model=ScriptedModel(together), trust="lab")
    decision = await commands(deployment).revoke(NAME, ["r-0"])
    assert decision.command is not None
    await commands(deployment).send(decision.command)
    return deployment


def is_over(deployment: Deployment) -> bool:
    return all(
        asked(deployment, line) and contents(deployment, line) == {LEFT} and not wanted(deployment, line)
        for line in LINES
    )


@pytest.mark.parametrize("role", ["shuffle", "publish"])
async def test_killed_at_any_write_each_line_asks_once(role: str) -> None:
    async for at, deployment in killed_at_each_write(role, under_way, is_over):
        assert [len(asked(deployment, line)) for line in LINES] == [1, 1], at
        assert (await audit(deployment.log)).good, at
