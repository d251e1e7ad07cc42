"""The same input again, in another log: the same plans, and on the same answers the same playbook."""

from functools import partial

import pytest

from combee.adapters.ports import FatalError
from combee.cli.replay import verb
from combee.cli.replay.replaying import Replay, content_of
from combee.core.batching.plan import plan_hash
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import StalledError
from combee.process.settings import methods
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Operation, OperationKind, Update
from combee_sim.embeddings import SimulatedEmbedder
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.replaying import relearned

pytestmark = pytest.mark.usefixtures("quick_polls")
EDIT = Command(
    command_id="e",
    playbook=NAME,
    kind="edit",
    operations=(Operation(kind=OperationKind.ADD, section="OTHERS", content="by hand", evidence=()),),
)


async def original() -> Deployment:
    """Return a history of two batches, an edit, a rollback and a batch; another playbook lies between."""
    deployment = Deployment(batch_size=10)
    async with deployment.running():
        for start in (0, 10):
            others = (reflection(100 + n, "q") for n in range(start, start + 10))
            mine = (reflection(n) for n in range(start, start + 10))
            pairs = zip(mine, others, strict=True)
            await deployment.log.produce(*(outgoing(one) for pair in pairs for one in pair))
        await deployment.until(lambda: ledger.applied(deployment.log) == 20)
        rollback = Command(command_id="r", playbook=NAME, kind="rollback", version=1)
        await deployment.log.produce(outgoing(EDIT), outgoing(rollback))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(20, 30)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 30)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


async def test_a_replay_has_the_budget_the_wording_and_the_embeddings_that_the_manifests_name() -> None:
    deployment = Deployment(batch_size=10, prompts="small", embedder=SimulatedEmbedder())
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    log, batches = deployment.log, ledger.batches(deployment.log)
    there = await verb._settings(load_settings(), log, "again", batches, ask=True)
    assert there.model.embedding_model == batches[0].plan.settings.embeddings == "embedding"
    recorded = await verb._settings(load_settings(), log, "again", batches, ask=False)
    assert recorded.model.embedding_model is None, "what was recorded needs no embedding server"
    assert there.playbook.playbook_tokens == deployment.budget_tokens
    assert there.batch.prompts == "small"


def said(deployment: Deployment) -> list[tuple[int, object]]:
    return [(one.version, one.entries) for one in ledger.versions(deployment.log)]


async def test_a_replay_of_recorded_answers_gives_the_same_plans_and_versions_without_a_model() -> None:
    first = await original()
    second, found = await relearned(first)
    assert (found.versions, found.batches, found.model_calls) == (5, 3, 0)
    assert (found.plans_differ, found.contents_differ) == ([], [])
    plans = [[plan_hash(one) for one in ledger.batches(each.log)] for each in (first, second)]
    assert plans[0] == plans[1]
    assert said(second) == said(first)
    assert second.model.calls == 0
    async with second.running():
        await second.until(lambda: not ledger.behind(second.log))
    assert (await audit(second.log)).good


async def test_a_replay_that_asks_again_leaves_out_what_was_left_out() -> None:
    first = Deployment(batch_size=10, stragglers=True)
    flush = Command(command_id="f", playbook=NAME, kind="flush", through_offset=8, left_out=(1,))
    async with first.running():
        await first.log.produce(*(outgoing(reflection(n)) for n in range(9)), outgoing(flush))
        await first.until(lambda: ledger.applied(first.log) == 9)
        await first.log.produce(*(outgoing(reflection(n)) for n in range(9, 19)))
        await first.until(lambda: ledger.applied(first.log) == 19)
    second, found = await relearned(first, recorded=False, stragglers=True)
    assert found.plans_differ == []
    left_out = [
        [update.result.left_out for update in ledger.messages(each.log, topics.UPDATES, Update)]
        for each in (first, second)
    ]
    assert left_out[0] == left_out[1]
    assert left_out[0][0] == (1,)
    assert (await audit(second.log)).good


async def test_a_replay_that_asks_again_has_the_same_plans() -> None:
    first = await original()
    second, found = await relearned(first, recorded=False)
    assert found.plans_differ == []
    assert found.model_calls == second.model.calls > 0


def _has_applied(deployment: Deployment, count: int) -> bool:
    return ledger.applied(deployment.log) == count


async def test_a_replay_gives_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "PROBATION_BATCHES", 1)
    first = Deployment(batch_size=10, probation=2)
    async with first.running():
        for start, lessons in ((0, 10), (10, 5), (20, 10)):
            taught = (reflection(n, key_insight=f"lesson {n % lessons}") for n in range(start, start + 10))
            await first.log.produce(*map(outgoing, taught))
            await first.until(partial(_has_applied, first, start + 10))
        await first.until(lambda: not ledger.behind(first.log))
    second, found = await relearned(first, probation=2)
    assert (found.plans_differ, found.contents_differ) == ([], [])
    assert said(second) == said(first)
    kinds = {change.kind for version in ledger.versions(first.log) for change in version.changes}
    assert {"promote", "expire"} <= kinds
    _, other = await relearned(first, probation=3)
    assert other.plans_differ == [1, 2, 3]


async def test_another_shape_of_batches_is_told() -> None:
    _, found = await relearned(await original(), copies=1)
    assert found.plans_differ == [1, 2, 3]


async def test_a_replay_to_where_the_playbook_is_already_is_refused() -> None:
    first = await original()
    replay = Replay(first.log, NAME, timeout_s=1)
    await replay.read()
    with pytest.raises(FatalError, match="exists there already"):
        await replay.run(first.log)


async def test_what_has_expired_cannot_be_replayed() -> None:
    first = await original()
    for partition in first.log._store.partitions(topics.REFLECTIONS.name):
        partition.expire(partition.end)
    with pytest.raises(FatalError, match="10 reflections of batch 1 have expired"):
        await relearned(first)


async def test_a_replay_of_nothing_is_refused() -> None:
    with pytest.raises(FatalError, match="has no version to replay"):
        await Replay(Deployment().log, NAME, timeout_s=1).read()


async def test_a_step_without_effect_ends_the_replay() -> None:
    replay = Replay((await original()).log, NAME, timeout_s=0.05)
    await replay.read()
    with pytest.raises(StalledError, match="nothing came to batches of the replay"):
        await replay.run(Deployment().log)


def test_versions_are_compared_by_what_they_say() -> None:
    one = Playbook(name="a", version=1, created_at_ms=5)
    assert content_of(one) == content_of(one.model_copy(update={"version": 2, "created_at_ms": 7}))
    assert content_of(one) != content_of(one.model_copy(update={"next_id": 9}))


async def test_a_pause_in_the_past_holds_up_no_replay() -> None:
    first = await original()
    far = first.clock.now_ms() + 10**9
    pause = Command(command_id="p", playbook=NAME, kind="pause", until_ms=far)
    resume = Command(command_id="q", playbook=NAME, kind="resume")
    async with first.running():
        await first.log.produce(outgoing(pause), outgoing(resume))
        await first.until(lambda: len(ledger.versions(first.log)) == 7)
        await first.log.produce(*(outgoing(reflection(n)) for n in range(30, 40)))
        await first.until(lambda: ledger.applied(first.log) == 40)
    assert [version.origin for version in ledger.versions(first.log)][5:] == ["pause", "resume", "batch"]
    _, found = await relearned(first)
    assert (found.versions, found.batches) == (8, 4)
    assert (found.plans_differ, found.contents_differ) == ([], [])
