"""More reflections than fit one command are revoked by several: all of them, whatever happens in between."""

from collections.abc import Sequence
from itertools import chain

import pytest

from combee.adapters.ports import Outgoing, TransientError
from combee.core.commands import RefusedError
from combee.core.gate.policy import GatePolicy
from combee.core.playbook import versions
from combee.log.commands.playbook import Commands
from combee.log.evidence import with_revoked
from combee.process.worker.dead_letters import dead_letter
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.command import Command
from combee_schemas.gate import Decision
from combee_schemas.scan import Seen, Update
from support import ledger
from support.branches import commands
from support.deployment import Deployment
from support.gates import add, update, verdict
from support.ledger import NAME, outgoing
from support.planned import PlanningDeployment

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCHES, SIZE = 5, 1_000
MALLORY = Source(name="mallory", proven="key")
RULE = "source:mallory"


def ids(sequence: int, length: int = 190, size: int = SIZE) -> list[str]:
    return [f"{sequence}{number:05d}".rjust(length, "x") for number in range(size)]


def taught(sequence: int, *given: str) -> Update:
    """Return a batch whose reflections are all of one source."""
    result = update(sequence, add(f"pay {'x' * 9}", given[0]))
    seen = tuple(
        Seen(reflection_id=one, offset=SIZE * sequence + at, source=MALLORY) for at, one in enumerate(given)
    )
    plan = result.plan.model_copy(
        update={"reflections": len(given), "through_offset": SIZE * (sequence + 1) - 1}
    )
    return result.model_copy(update={"plan": plan, "result": result.result.model_copy(update={"seen": seen})})


async def learned(*batches: Sequence[str], **settings: object) -> Deployment:
    deployment = PlanningDeployment(**settings)
    async with deployment.running(["publish"]):
        for sequence, given in enumerate(batches, 1):
            await deployment.log.produce(outgoing(taught(sequence, *given)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == len(batches))
    return deployment


async def small(
    monkeypatch: pytest.MonkeyPatch, command_id: str | None = "mine"
) -> tuple[Deployment, Commands, Command]:
    """Return a playbook, and a revocation of it that is sent in three parts."""
    monkeypatch.setattr(versions, "PART_BYTES", 150)
    deployment = await learned(*(ids(sequence, 10, 10) for sequence in (1, 2, 3, 4)))
    decision = await commands(deployment).revoke(NAME, [RULE], command_id=command_id)
    assert decision.command is not None
    return deployment, commands(deployment), decision.command


def sent(deployment: Deployment) -> list[Command]:
    return ledger.messages(deployment.log, topics.COMMANDS, Command)


async def test_a_source_of_five_thousand_long_ids_is_revoked_whole() -> None:
    everything = [ids(sequence) for sequence in range(1, BATCHES + 1)]
    deployment = await learned(*everything)
    on = commands(deployment)
    async with deployment.running(["publish"]):
        decision = await on.revoke(NAME, [RULE])
        assert decision.command is not None
        assert await on.carried_out(decision.command, timeout_s=20) is not None
        assert (await on.revoke(NAME, [RULE])).command is None
    newest = ledger.latest(deployment.log)
    assert not newest.entries
    assert set((await with_revoked(deployment.log, newest)).revoked) == set(chain(*everything))
    assert ledger.dead_letters(deployment.log) == []


@pytest.mark.parametrize("command_id", ["mine", None])
async def test_a_revocation_that_broke_off_between_its_parts_is_completed_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch, command_id: str | None
) -> None:
    deployment, on, command = await small(monkeypatch, command_id)
    async with deployment.running(["publish"]):
        produce = deployment.log.produce

        async def broken(*records: Outgoing) -> Sequence[int]:
            await produce(*records[:1])
            raise TransientError("the broker is gone")

        with monkeypatch.context() as during:
            during.setattr(deployment.log, "produce", broken)
            with pytest.raises(TransientError):
                await on.send(command)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 5)
        again = (await on.revoke(NAME, [RULE], command_id=command_id)).command
        assert again is not None
        assert await on.carried_out(again, timeout_s=10) is not None
        assert (await on.revoke(NAME, [RULE], command_id=command_id)).command is None
    newest = ledger.latest(deployment.log)
    assert (newest.version, newest.entries) == (7, ()), "three parts, one version each"
    assert set((await with_revoked(deployment.log, newest)).revoked) == {*command.reflection_ids}


async def test_the_refusal_of_any_part_is_the_refusal_of_the_revocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment, on, command = await small(monkeypatch)
    in_log = await on.send(command)
    assert [part.command_id == "mine" for part in sent(deployment)] == [False, False, True]
    _, middle, _ = ledger.records(deployment.log, topics.COMMANDS)
    await deployment.log.produce(
        dead_letter(middle, service="publish", reason="it cannot be", clock=deployment.clock)
    )
    with pytest.raises(RefusedError, match="publish refused it: it cannot be"):
        await on.outcome(in_log, timeout_s=10)


async def test_nothing_of_a_revocation_is_written_if_a_part_of_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment, on, command = await small(monkeypatch)
    with pytest.raises(RefusedError, match="cannot be sent"):
        await on.send(command.model_copy(update={"rules": ("text:" + "x" * 1_000_000,)}))
    assert sent(deployment) == []


async def test_a_candidate_of_more_reflections_than_a_version_can_name_is_rejected_whole() -> None:
    everything = [ids(sequence) for sequence in range(1, 8)]
    deployment = await learned(*everything, gates=GatePolicy(judges=("evaluate",)))
    async with deployment.running(["publish"]):
        for candidate in (1, 8):
            await deployment.log.produce(outgoing(verdict(candidate, 0, accepts=False)))
            await deployment.until(
                lambda: not [at for at in ledger.behind(deployment.log) if at[0] == "publish"]
            )
    assert ledger.dead_letters(deployment.log) == []
    assert [decision.taken_back for decision in decisions(deployment)] == [0, SIZE, 6 * SIZE]
    newest = ledger.latest(deployment.log)
    assert not newest.entries
    assert newest.version == len(ledger.versions(deployment.log))
    assert set((await with_revoked(deployment.log, newest)).revoked) == set(chain(*everything))
    # A service that starts anew knows all of them: what they teach again, or taught once, does not count.
    on = commands(deployment)
    async with deployment.running(["publish"]):
        await deployment.log.produce(outgoing(taught(8, *everything[0])))
        await deployment.until(lambda: ledger.latest(deployment.log).batch_sequence == 8)
        assert not ledger.latest(deployment.log).entries
        restored = (await on.rollback(NAME, 7)).command
        assert restored is not None
        assert await on.carried_out(restored, timeout_s=10) is not None
    assert (ledger.latest(deployment.log).origin, ledger.latest(deployment.log).entries) == ("rollback", ())


def decisions(deployment: Deployment) -> list[Decision]:
    return ledger.messages(deployment.log, topics.DECISIONS, Decision)
