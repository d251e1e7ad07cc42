"""A batch without reflections: asked for by a command, cut by shuffle, asked about by scan, published once."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from combee.adapters.ports import Embedded, FatalError, PoisonError, PromptTooLongError, TransientError
from combee.cli.replay.replaying import Replay
from combee.cli.shared.sending import commands_on
from combee.core.batching.plan import plan_hash
from combee.core.batching.sizing.policy import iteration_of
from combee.core.commands import RefusedError
from combee.core.gate.policy import GatePolicy
from combee.core.playbook.shown import shown_to
from combee.core.playbook.versions import InapplicableError, after_update, empty, made_by, origin_text
from combee.log.inspection.audit import audit
from combee.log.inspection.lineage import lineage
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import NodeResult, Operation, OperationKind, Update
from combee_sim.embeddings import SimulatedEmbedder
from combee_sim.family.family import lessons
from combee_sim.family.lessons import entries_in
from combee_sim.family.wordings import all_wordings
from support import ledger
from support.deployment import Deployment, updates_left
from support.gates import command, places, verdict
from support.gateway import asked, published, version
from support.killed import Begun, killed_at_each_write
from support.ledger import NAME, batch_of, outgoing, reflection
from support.models import Answer, ScriptedModel, echo, items
from support.reading import publish_with, run, run_json, use_log
from support.replaying import relearned

pytestmark = pytest.mark.usefixtures("quick_polls")
PAGE = "Page through all results of the song library until a page is empty, then count the songs."
AGAIN = "Before counting songs, page through all the song library's results until an empty page comes."
FEE = "Refund opened parcels less a restocking fee of 15 %."
MERGED = "Page through all results of the song library until a page is empty before counting songs."


BUDGET = 100
"""Tokens; the three entries above are about 80."""
REWORDED = all_wordings(lessons()[0])[0::3]
"""A lesson in two wordings that share few words."""


def is_consolidation(prompt: Prompt) -> bool:
    return "<clusters " in prompt.user


def merging(prompt: Prompt) -> Mapping[str, Any]:
    """Merge every cluster; learn everything else as it is."""
    if not is_consolidation(prompt):
        return echo(prompt)
    ids = [[entry.id for entry in entries_in(cluster["entries"].splitlines())] for cluster in items(prompt)]
    return {"operations": [{"type": "MERGE", "entry_ids": one, "content": MERGED} for one in ids]}


async def learned(answer: Answer = merging, **settings: Any) -> Deployment:
    """Return a deployment whose playbook has two entries that say the same."""
    deployment = Deployment(batch_size=3, model=ScriptedModel(answer), **settings)
    async with deployment.running():
        given = enumerate((PAGE, AGAIN, FEE))
        await deployment.log.produce(*(outgoing(reflection(n, key_insight=text)) for n, text in given))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
    return deployment


async def consolidate(deployment: Deployment, *, command_id: str | None = None) -> Command | None:
    commands = commands_on(deployment.log, deployment.clock)
    decision = await commands.consolidate(NAME, command_id=command_id)
    if decision.command:
        await commands.send(decision.command)
    return decision.command


async def consolidated(deployment: Deployment) -> Playbook:
    async with deployment.running():
        await consolidate(deployment)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    return ledger.latest(deployment.log)


async def test_entries_that_are_alike_become_one_with_the_evidence_of_both() -> None:
    deployment = await learned()
    made = await consolidated(deployment)
    assert {entry.content: set(entry.evidence) for entry in made.entries} == {
        MERGED: {"r-0", "r-1"},
        FEE: {"r-2"},
    }
    assert [change.kind for change in made.changes] == ["merge", "update"]
    assert (made.version, made.batch_sequence) == (2, 2)
    assert batch_of(made).usage.calls == len(["about the clusters", "check of what is rewritten"])
    assert (made.audit, made.omitted_recent) == (None, (0.0,))
    (_, batch) = ledger.batches(deployment.log)
    assert (batch.members, batch.plan.reason, batch.plan.reflections) == ((), "consolidate", 0)
    alike = tuple(entry.id for entry in ledger.versions(deployment.log)[0].entries if entry.content != FEE)
    assert [(cluster.why, cluster.entry_ids, cluster.by) for cluster in batch.clusters] == [
        ("alike", alike, "words")
    ]
    found = await audit(deployment.log)
    assert (found.violations, found.applied, found.good) == ((), 3, True)
    kept = next(entry.id for entry in made.entries if entry.content == MERGED)
    why = await lineage(deployment.log, NAME, kept, traces=False, on_progress=lambda *_: None)
    assert {source.reflection_id for source in why.sources} == {"r-0", "r-1"}
    assert [version.version for version, _ in why.changes] == [1, 2]


@pytest.mark.parametrize("by_whom", ["a judge", "a person"])
async def test_a_rejected_consolidation_is_taken_back_and_bars_no_honest_lesson(by_whom: str) -> None:
    deployment = await learned(gates=GatePolicy(judges=("evaluate",)))
    before = {(entry.id, entry.content) for entry in ledger.latest(deployment.log).entries}
    async with deployment.running():
        await deployment.log.produce(outgoing(verdict(1, 0)))
        await deployment.until(lambda: places(deployment.log) == (1, 0))
    made = await consolidated(deployment)
    ids = tuple(change.entry_id for change in made.changes)
    rejects = command("reject", version=2, base_version=1, entry_ids=ids)
    async with deployment.running():
        against = verdict(2, 1, accepts=False) if by_whom == "a judge" else rejects
        await deployment.log.produce(outgoing(against))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        # Who said a lesson before may say it again.
        more = (outgoing(reflection(n, key_insight=PAGE)) for n in range(10, 13))
        await deployment.log.produce(*more)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
    after = ledger.latest(deployment.log)
    assert {(entry.id, entry.content) for entry in after.entries} == before
    assert next(len(entry.evidence) for entry in after.entries if entry.content == PAGE) == 4
    assert places(deployment.log) == (1, 0)
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize("by_whom", ["a judge", "a person"])
async def test_a_judge_that_measures_has_a_consolidation_go_first_and_a_person_rejects_all(
    by_whom: str,
) -> None:
    deployment = await learned(gates=GatePolicy(judges=("evaluate",)))
    before = {entry.content for entry in ledger.latest(deployment.log).entries}
    await consolidated(deployment)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 13)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        await deployment.log.produce(outgoing(verdict(1, 0)))
        await deployment.until(lambda: places(deployment.log) == (1, 3))
        if by_whom == "a judge":
            await deployment.log.produce(outgoing(verdict(3, 1, accepts=False)))
            await deployment.until(lambda: places(deployment.log) == (1, 4))
            after = {entry.content for entry in ledger.latest(deployment.log).entries}
            assert (len(after - before), before - after) == (3, set())
            await deployment.log.produce(outgoing(verdict(4, 1, accepts=False)))
        else:
            await deployment.log.produce(outgoing(command("reject", version=3, base_version=1)))
        await deployment.until(lambda: places(deployment.log) == (1, 0))
    assert {entry.content for entry in ledger.latest(deployment.log).entries} == before
    assert (await audit(deployment.log)).good
    with pytest.raises(FatalError, match="was made by a rejection at the gate"):
        await Replay(deployment.log, NAME, recorded=True, timeout_s=1).read()


@pytest.mark.parametrize("merged", [PAGE, MERGED])
async def test_what_a_consolidation_has_united_since_production_is_apart_again(merged: str) -> None:
    """Also where it left the words of one of its entries."""

    def uniting(prompt: Prompt) -> Mapping[str, Any]:
        done = merging(prompt)
        if is_consolidation(prompt):
            return {"operations": [{**one, "content": merged} for one in done["operations"]]}
        return done

    deployment = Deployment(
        batch_size=3, model=ScriptedModel(uniting), gates=GatePolicy(judges=("evaluate",))
    )
    given = [reflection(n) for n in range(10, 13)]
    given += [reflection(n, key_insight=text) for n, text in enumerate((PAGE, AGAIN, FEE))]
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, given))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        before = {(entry.id, entry.content) for entry in ledger.latest(deployment.log).entries}
        await consolidate(deployment)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        assert {(entry.id, entry.content) for entry in ledger.latest(deployment.log).entries} != before
        await deployment.log.produce(outgoing(verdict(1, 0)))
        await deployment.until(lambda: places(deployment.log) == (1, 3))
        await deployment.log.produce(outgoing(verdict(3, 1, accepts=False)))
        await deployment.until(lambda: places(deployment.log) == (1, 4))
        undone = ledger.latest(deployment.log)
        assert {(entry.id, entry.content) for entry in undone.entries} == before
        await deployment.log.produce(*(outgoing(reflection(n, key_insight=PAGE)) for n in range(20, 23)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 5)
    after = ledger.latest(deployment.log)
    assert {"r-0", "r-20"} <= {*next(entry.evidence for entry in after.entries if entry.content == PAGE)}
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize("content", ["", "A person's words.", MERGED], ids=["removed", "edited", "kept"])
async def test_what_a_person_has_done_with_a_consolidation_stays_after_its_rejection(content: str) -> None:
    """What it united comes back by no other id."""
    deployment = await learned(gates=GatePolicy(judges=("evaluate",)))
    made = await consolidated(deployment)
    (one,) = (entry for entry in made.entries if entry.content == MERGED)
    kind = OperationKind.UPDATE if content else OperationKind.REMOVE
    done = Operation(kind=kind, section=one.section, content=content, entry_ids=(one.id,))
    async with deployment.running():
        await deployment.log.produce(outgoing(verdict(1, 0)))
        await deployment.until(lambda: places(deployment.log) == (1, 2))
        await deployment.log.produce(outgoing(command("edit", operations=(done,), base_version=2)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        await deployment.log.produce(outgoing(verdict(2, 1, accepts=False)))
        await deployment.until(lambda: places(deployment.log) != (1, 2))
    left = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert left == {FEE, content} - {""}


async def test_a_rejected_consolidation_stays_out_of_rollbacks_and_is_not_asked_for_at_once() -> None:
    deployment = await grown(gates=GatePolicy(judges=("evaluate",)))
    before = {entry.content for entry in ledger.latest(deployment.log).entries}
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
        await deployment.log.produce(outgoing(verdict(1, 0)))
        await deployment.until(lambda: places(deployment.log) == (1, 2))
        await deployment.log.produce(outgoing(verdict(2, 1, accepts=False)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        await deployment.log.produce(outgoing(command("rollback", version=2)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert made_by(ledger.versions(deployment.log)[1]) == "automatic consolidation"
    assert {entry.content for entry in ledger.latest(deployment.log).entries} == before
    assert [batch.plan.reason for batch in ledger.batches(deployment.log)].count("consolidate") == 1


async def test_a_consolidation_that_is_rejected_while_a_fork_is_on_its_way_is_not_on_the_branch() -> None:
    line, branch = f"{NAME}@b", Command(command_id="b", playbook=NAME, kind="branch", branch="b")
    deployment = await learned(gates=GatePolicy(judges=("evaluate",)))
    before = {entry.content for entry in ledger.latest(deployment.log).entries}
    await consolidated(deployment)
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(outgoing(branch))
        await deployment.until(lambda: bool(ledger.batches(deployment.log, line)))
    with updates_left():
        async with deployment.running(["publish"]):
            await deployment.log.produce(outgoing(verdict(1, 0)))
            await deployment.until(lambda: places(deployment.log) == (1, 2))
            await deployment.log.produce(outgoing(verdict(2, 1, accepts=False)))
            await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    async with deployment.running(["publish"]):
        await deployment.until(lambda: bool(ledger.versions(deployment.log, line)))
    assert {entry.content for entry in ledger.latest(deployment.log, line).entries} == before


async def test_learning_goes_on_after_a_consolidation() -> None:
    deployment = await learned()
    await consolidated(deployment)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 13)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert len(ledger.latest(deployment.log).entries) == 5
    assert (await audit(deployment.log)).good


async def test_what_waits_in_the_window_stays_there() -> None:
    deployment = await learned()
    async with deployment.running():
        await deployment.log.produce(outgoing(reflection(10)))
        await consolidate(deployment)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.log.produce(*(outgoing(reflection(n)) for n in (11, 12)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert ledger.applied(deployment.log) == 6
    assert (await audit(deployment.log)).good


async def test_a_command_that_is_sent_again_has_one_effect() -> None:
    deployment = await learned()
    async with deployment.running():
        command = await consolidate(deployment, command_id="once")
        assert command is not None
        await deployment.log.produce(outgoing(command))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.log.produce(outgoing(command), *(outgoing(reflection(n)) for n in range(10, 13)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert [batch.plan.reason for batch in ledger.batches(deployment.log)].count("consolidate") == 1
    assert "once" in ledger.latest(deployment.log).commands
    assert await consolidate(deployment, command_id="once") is None


async def test_who_takes_over_knows_which_commands_have_a_batch() -> None:
    deployment = await learned()
    async with deployment.running(["shuffle"]):
        command = Command(command_id="once", playbook=NAME, kind="consolidate")
        await deployment.log.produce(outgoing(command))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
    await deployment.log.produce(outgoing(command))
    async with deployment.running():
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert len(ledger.batches(deployment.log)) == 2


async def test_a_call_that_fails_changes_nothing_and_is_over() -> None:
    def failing(prompt: Prompt) -> Mapping[str, Any]:
        if is_consolidation(prompt):
            raise PoisonError("no usable reply")
        return echo(prompt)

    deployment = await learned(failing)
    made = await consolidated(deployment)
    assert batch_of(made).degraded
    assert len(made.entries) == 3
    assert (await audit(deployment.log)).good


async def test_what_is_too_long_for_the_model_is_asked_in_halves() -> None:
    def narrow(prompt: Prompt) -> Mapping[str, Any]:
        if is_consolidation(prompt) and len(items(prompt)) > 1:
            raise PromptTooLongError("too long")
        return merging(prompt)

    deployment = Deployment(batch_size=3, model=ScriptedModel(narrow))
    other = [text.replace("song", "invoice").replace("library", "archive") for text in (PAGE, AGAIN)]
    await published(deployment.log, version(NAME, 1, PAGE, AGAIN, *other, batch_sequence=0, origin="import"))
    made = await consolidated(deployment)
    usage = batch_of(made).usage
    assert (usage.splits, usage.checks, usage.calls) == (1, 1, 3)


async def test_a_replay_consolidates_at_the_same_place() -> None:
    first = await learned()
    await consolidated(first)
    second, found = await relearned(first, batch_size=3)
    assert (found.versions, found.plans_differ, found.contents_differ) == (2, [], [])
    plans = [[plan_hash(batch) for batch in ledger.batches(each.log)] for each in (first, second)]
    assert plans[0] == plans[1]


async def test_a_method_that_would_turn_entries_into_texts_makes_it_wait() -> None:
    deployment = await learned()
    deployment.settings = deployment.settings.model_copy(update={"method": "gepa"})
    async with deployment.running():
        await consolidate(deployment)
        others = (reflection(n, "q", side_info={"Feedback": f"fact {n}"}) for n in range(50, 53))
        await deployment.log.produce(*map(outgoing, others))
        await deployment.until(lambda: bool(ledger.batches(deployment.log, "q")))
    assert len(ledger.batches(deployment.log)) == 1


async def asked_for() -> Deployment:
    """Return a deployment in which somebody has asked for a consolidation."""
    deployment = await learned()
    await consolidate(deployment)
    return deployment


def over(deployment: Deployment) -> bool:
    return len(ledger.versions(deployment.log)) == 2 and not ledger.behind(deployment.log)


async def grown(**settings: Any) -> Deployment:
    """Return a deployment whose playbook has grown enough to be consolidated by itself, from now on."""
    deployment = await learned(budget_tokens=BUDGET, embedder=SimulatedEmbedder(), **settings)
    deployment.settings = deployment.settings.model_copy(update={"consolidate_above": 0.5})
    return deployment


@pytest.mark.parametrize("begun", [asked_for, grown])
@pytest.mark.parametrize("role", ["shuffle", "scan", "publish"])
async def test_killed_at_any_write_a_consolidation_has_one_effect(role: str, begun: Begun) -> None:
    async for at, deployment in killed_at_each_write(role, begun, over):
        assert len(ledger.batches(deployment.log)) == 2, at
        assert len(ledger.latest(deployment.log).entries) == 2, at
        assert (await audit(deployment.log)).good, at


@pytest.mark.parametrize(("sources", "asked"), [(1, {"harmful", "alike"}), (2, {"alike"})])
async def test_what_runs_of_too_few_sources_found_harmful_is_not_asked_about(
    sources: int, asked: set[str]
) -> None:
    deployment = await learned()
    (made,) = ledger.versions(deployment.log)
    fee = next(entry.id for entry in made.entries if entry.content == FEE)
    run: dict[str, Any] = {
        "bullet_tags": (BulletTag(id=fee, tag="harmful"),),
        "shown": shown_to(made, made.entries),
    }
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n, **run)) for n in range(3, 6)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    assert next(entry.harmful for entry in ledger.latest(deployment.log).entries if entry.id == fee) == 3
    deployment.settings = deployment.settings.model_copy(
        update={"trust": "public" if sources > 1 else "team", "colluders": max(1, sources - 1)}
    )
    async with deployment.running():
        await consolidate(deployment)
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 3)
    assert {cluster.why for cluster in ledger.batches(deployment.log)[-1].clusters} == asked


def test_the_controller_learns_nothing_from_a_consolidation() -> None:
    plan = Plan(
        batch_id="b",
        playbook="p",
        sequence=1,
        widths=(1,),
        base_version=0,
        reflections=0,
        reason="consolidate",
    )
    update = Update(plan=plan, node_id="n", result=NodeResult(status="empty"))
    assert not iteration_of(after_update(empty("p"), update, budget_tokens=9, now_ms=0)).is_batch


def test_a_batch_without_reflections_is_refused_unless_somebody_asked_for_it() -> None:
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(1,), base_version=0, reflections=0)
    forged = Update(plan=plan, node_id="n", result=NodeResult(status="empty"))
    with pytest.raises(InapplicableError):
        after_update(empty("p"), forged, budget_tokens=9, now_ms=0)


# ---- by itself


async def test_a_playbook_that_has_grown_is_consolidated_by_itself_and_once() -> None:
    deployment = await grown()
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
        made = ledger.latest(deployment.log)
        assert (batch_of(made).plan.automatic, made.consolidated_version) == (True, 1)
        assert made_by(made) == "automatic consolidation"
        assert origin_text(made) == f"automatic consolidation, batch {made.batch_sequence}"
        assert len(made.entries) == 2
        known = (reflection(n, key_insight=FEE) for n in range(10, 13))
        await deployment.log.produce(*map(outgoing, known))
        await deployment.until(lambda: ledger.applied(deployment.log) == 6)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (only,) = (batch for batch in ledger.batches(deployment.log) if batch.plan.automatic)
    assert only.plan.command_id in ledger.latest(deployment.log).commands
    assert (await audit(deployment.log)).good


async def test_one_that_found_nothing_is_not_tried_again_until_there_is_something_new() -> None:
    deployment = Deployment(batch_size=1, model=ScriptedModel(merging), budget_tokens=2 * BUDGET)
    deployment.settings = deployment.settings.model_copy(update={"consolidate_above": 0.1})
    async with deployment.running():
        for n, text in enumerate((PAGE, "Read.", FEE)):
            await deployment.log.produce(outgoing(reflection(n, key_insight=text)))
            await deployment.until(lambda n=n: ledger.applied(deployment.log) == n + 1)  # type: ignore[misc]
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 5)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (first, second) = (batch for batch in ledger.batches(deployment.log) if batch.plan.automatic)
    assert (first.clusters, second.clusters) == ((), ())
    # What "Read." adds is not worth a call; a consolidation without clusters makes none.
    assert [batch.plan.base_version for batch in (first, second)] == [1, 4]
    assert not any(map(is_consolidation, deployment.model.prompts))


async def test_while_one_is_under_way_a_new_version_calls_for_no_other() -> None:
    deployment = await learned(budget_tokens=BUDGET)
    both = {"consolidate_above": 0.5, "max_inflight_batches": 3}
    deployment.settings = deployment.settings.model_copy(update=both)
    added = Operation(kind=OperationKind.ADD, content=REWORDED[0])
    edit = Command(command_id="e", playbook=NAME, kind="edit", operations=(added,))
    async with deployment.running(["shuffle", "publish"]):
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await deployment.log.produce(outgoing(edit), *(outgoing(reflection(n)) for n in range(10, 13)))
        await deployment.until(lambda: ledger.latest(deployment.log).version == 2)
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(20, 23)))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 4)
    assert [batch.plan.automatic for batch in ledger.batches(deployment.log)] == [False, True, False, False]


async def test_a_person_who_asks_for_what_happens_by_itself_gets_that() -> None:
    deployment = await grown()
    command = await consolidate(deployment)
    async with deployment.running():
        await deployment.until(lambda: over(deployment))
    assert command is not None
    assert command.command_id in ledger.latest(deployment.log).commands
    assert len(ledger.batches(deployment.log)) == 2


async def test_a_replay_repeats_one_that_happened_by_itself() -> None:
    first = await grown()
    async with first.running():
        await first.until(lambda: over(first))
    _, found = await relearned(first, batch_size=3, budget_tokens=BUDGET)
    assert (found.versions, found.plans_differ, found.contents_differ) == (2, [], [])


# ---- by embeddings


class NoEmbedder(SimulatedEmbedder):
    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise TransientError(f"nobody listens for {len(texts)} texts")


async def test_embeddings_find_other_words_for_a_lesson_and_what_was_found_is_in_the_manifest() -> None:
    deployment = Deployment(
        batch_size=3, model=ScriptedModel(merging), embedder=SimulatedEmbedder(), trust="lab"
    )
    await published(deployment.log, version(NAME, 1, *REWORDED, FEE, batch_sequence=0, origin="import"))
    assert await consolidate(deployment) is None, "their words alone show nothing"
    async with deployment.running():
        command = Command(command_id="c", playbook=NAME, kind="consolidate")
        await deployment.log.produce(outgoing(command))
        await deployment.until(lambda: bool(ledger.batches(deployment.log)))
        await deployment.until(lambda: ledger.latest(deployment.log).version == 2)
    (batch,) = ledger.batches(deployment.log)
    assert [(len(cluster.entry_ids), cluster.by) for cluster in batch.clusters] == [(2, "meaning")]
    assert batch.embeddings == batch.plan.settings.embeddings == "embedding"
    assert batch.plan.reflect_usage.calls == 1
    made = ledger.latest(deployment.log)
    assert len(made.entries) == 2
    assert made.spend.tokens == batch.plan.reflect_usage.tokens_in + batch_of(made).usage.tokens_in
    again = Deployment(batch_size=3, trust="lab")
    await published(again.log, version(NAME, 1, *REWORDED, FEE, batch_sequence=0, origin="import"))
    async with again.running(["shuffle"]):
        await again.log.produce(outgoing(command.model_copy(update={"clusters": batch.clusters})))
        await again.until(lambda: bool(ledger.batches(again.log)))
    (replayed,) = ledger.batches(again.log)
    assert plan_hash(replayed) == plan_hash(batch), "a replay needs no embeddings"


async def test_without_an_answer_near_duplicates_are_found_by_their_words() -> None:
    deployment = await learned(embedder=NoEmbedder())
    made = await consolidated(deployment)
    assert len(made.entries) == 2
    (_, batch) = ledger.batches(deployment.log)
    assert batch.embeddings == "none of embedding (nobody listens for 3 texts)"


async def test_learning_does_not_wait_for_embeddings() -> None:
    answer = asyncio.Event()

    class Slow(SimulatedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Embedded:
            await answer.wait()
            return await super().embed(texts)

    deployment = await learned(embedder=Slow())
    async with deployment.running():
        await consolidate(deployment)
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 13)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 6)
        answer.set()
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    reasons = [batch.plan.reason for batch in ledger.batches(deployment.log)]
    assert reasons == ["size", "size", "consolidate"]
    assert (await audit(deployment.log)).good


async def test_where_embeddings_may_find_more_both_faces_ask() -> None:
    deployment = Deployment(partitions=1)
    await published(deployment.log, version(NAME, 1, *REWORDED))
    asked_by_line = await commands_on(deployment.log, deployment.clock, embeds=True).consolidate(NAME)
    assert asked_by_line.command is not None
    alone = Deployment(partitions=1)
    await published(alone.log, version(NAME, 1, FEE))
    assert (await commands_on(alone.log, alone.clock, embeds=True).consolidate(NAME)).command is None


# ---- asked for


def test_the_command_line_says_what_became_of_which_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = asyncio.run(learned())
    use_log(monkeypatch, deployment.log)
    publish_with(monkeypatch, deployment, "publish", "scan", "shuffle")
    out = run("playbook", "consolidate", NAME).stdout
    assert f"{NAME} version 2: 2 entries; from a consolidation, batch 2" in out
    assert "- merged misc-0000" in out
    assert run_json("playbook", "consolidate", NAME) == {
        "name": NAME, "version": 2, "before": 2, "entries": 2, "changed": False, "diff": [],
    }  # fmt: skip


async def test_both_faces_send_the_same_command_and_refuse_the_same() -> None:
    sent: list[Command] = []
    for face in ("line", "http"):
        deployment = Deployment(partitions=1)
        await published(deployment.log, version(NAME, 1, PAGE, AGAIN, FEE))
        if face == "http":
            async with asked(deployment.log) as gateway:
                answer = await gateway.client.post(f"/v1/playbooks/{NAME}/consolidate", json={})
                assert (answer.status_code, answer.json()["changed"]) == (202, True)
        else:
            await consolidate(deployment)
        (command,) = ledger.messages(deployment.log, topics.COMMANDS, Command)
        sent.append(command.model_copy(update={"issued_at_ms": 0, "issued_by": ""}))
    assert sent[0] == sent[1]
    assert sent[0].kind == "consolidate"


@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        (version(NAME, 1, FEE), 200, None),
        (version(NAME, 1, PAGE, AGAIN, holds="components"), 409, "holds components: only entries"),
        (version(NAME, 2, entries=(), origin="delete"), 404, "no playbook"),
    ],
)
async def test_nothing_alike_is_nothing_to_do_and_what_cannot_be_is_refused(
    state: Playbook, status: int, said: str | None
) -> None:
    deployment = Deployment(partitions=1)
    await published(deployment.log, version(NAME, 1, FEE), *([state] if state.version > 1 else []))
    if state.version == 1:
        deployment = Deployment(partitions=1)
        await published(deployment.log, state)
    async with asked(deployment.log) as gateway:
        answer = await gateway.client.post(f"/v1/playbooks/{NAME}/consolidate", json={})
    assert answer.status_code == status
    if said is None:
        assert answer.json()["changed"] is False
        assert await consolidate(deployment) is None
        return
    assert said in answer.json()["detail"]
    with pytest.raises(RefusedError, match=r"only entries|no playbook"):
        await consolidate(deployment)
