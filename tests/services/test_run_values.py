"""What producers say of a run stays a value on its way: scores, success, who it came from, what was asked."""

from typing import Any

import pytest

from combee.core.batching.plan import RUNS_BYTES, Base, outcomes, plan_batch, plan_hash, same_plan
from combee.core.formats.intake import read_line
from combee.core.methods import ace
from combee.core.methods.templates import templates_hash
from combee.process.settings.methods import as_configured, plan_settings
from combee.scan import handler
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.batch import Batch, Member
from combee_schemas.plan import PlanSettings
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Partial, Update
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.examples import examples
from support.ledger import NAME, batch_of, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

SHOP, DESK = Source(name="agents/shop", proof="signed"), Source(name="agents/desk")


async def learned(*published: Any, **settings: Any) -> Deployment:
    async with Deployment(batch_size=len(published), **settings).running() as running:
        await running.log.produce(*published)
        await running.until(lambda: ledger.applied(running.log) == len(published))
        await running.until(lambda: not ledger.behind(running.log))
    return running


def trace(number: int, **fields: object) -> Any:
    told = {"trace_id": f"t{number}", "playbook": NAME, "task": "t", "answer": f"a {number}"}
    return topics.TRACES.record(Trace.model_validate({**told, **fields}))


async def test_scores_and_success_go_from_the_trace_to_the_version() -> None:
    found = await learned(
        trace(1, score={"accuracy": 1.0}, success=True, bullet_ids=["misc-00001"]),
        trace(2, score={"accuracy": 0.5, "steps": 7}, success=False),
        trace(3),
    )
    reflections = {one.trace_id: one for one in ledger.messages(found.log, topics.REFLECTIONS, Reflection)}
    assert (reflections["t1"].score, reflections["t1"].bullet_ids) == ({"accuracy": 1.0}, ("misc-00001",))
    (batch,) = ledger.batches(found.log)
    assert {one.success for one in batch.members} == {True, False, None}
    told = batch_of(ledger.latest(found.log)).plan.outcomes
    assert (told.scores, told.successes, told.failures) == ({"accuracy": 0.75, "steps": 7.0}, 1, 1)


async def test_who_a_lesson_came_from_stands_on_its_entry() -> None:
    mine = (outgoing(reflection(n, source=source)) for n, source in enumerate((SHOP, DESK, None)))
    found = await learned(*mine, trust="lab")
    by_lesson = {entry.content: entry.sources for entry in ledger.latest(found.log).entries}
    assert by_lesson == {"lesson 0": (SHOP.name,), "lesson 1": (DESK.name,), "lesson 2": ()}
    (update,) = ledger.messages(found.log, topics.UPDATES, Update)
    without_proof = SHOP.model_copy(update={"proof": ""})
    assert {one.source for one in update.result.seen} == {without_proof, DESK, None}
    assert {one.state for one in ledger.latest(found.log).entries} == {"active"}


async def test_every_result_that_a_model_was_asked_for_carries_what_was_asked() -> None:
    found = await learned(*(outgoing(reflection(n)) for n in range(9)))
    results = [one.result for one in ledger.messages(found.log, topics.PARTIALS[0], Partial)]
    results += [one.result for one in ledger.messages(found.log, topics.UPDATES, Update)]
    asked = [one for result in results for one in result.requests]
    assert len(asked) == len(set(asked)) == found.model.calls == 4


def planned(scored: int = 0, salt: str = "", source: Source = SHOP) -> Any:
    members = [
        Member(
            offset=n, reflection_id=f"r{n}", score={f"s{k}": float(n) for k in range(scored)}, source=source
        )
        for n in range(2000)
    ]
    settings = PlanSettings(copies=2, fan_in=32, max_levels=4, group_bytes=700 << 10, salt=salt)
    base = Base(version=0, sequence=0)
    return plan_batch(
        "p",
        1,
        members,
        [1] * 2000,
        settings=settings,
        base=base,
        reason="size",
        batch_size=1,
        through_offset=9,
    )


@pytest.mark.parametrize(
    ("source", "stays"),
    [(SHOP, True), (Source(name="s" * 80, proven="key"), True), (Source(name="\U0001f41d" * 80), False)],
    ids=["short", "proven", "claimed"],
)
def test_scores_that_would_burst_a_manifest_are_kept_as_their_means_alone(
    source: Source, *, stays: bool
) -> None:
    """A revocation finds what a source taught by the sources in manifests: nobody's scores may take their room."""
    batch = planned(scored=10, source=source.model_copy(update={"proof": "p" * 200}))
    left = source.model_copy(update={"proof": ""}) if stays else None
    assert {(one.source, len(one.score)) for one in batch.members} == {(left, 0)}
    assert batch.plan.outcomes.scores["s0"] == 999.5
    assert len(topics.BATCHES.record(batch).value or b"") < 900 * 1024 - RUNS_BYTES


def test_of_many_scores_the_ten_that_most_have_are_told() -> None:
    members = [Member(offset=n, reflection_id="r", score={"all": 1.0, f"own {n}": 1.0}) for n in range(20)]
    told = outcomes(members).scores
    assert (len(told), "all" in told) == (10, True)


def test_a_salt_deals_anew_and_is_in_the_hash() -> None:
    plain, salted = planned(), planned(salt="again")
    assert (plain.seed != salted.seed, plan_hash(plain) != plan_hash(salted)) == (True, True)
    assert plain.plan.sha256 == plan_hash(plain)


# ---- settings ride in the manifest


async def test_a_manifest_says_whatever_shapes_prompts_and_tree() -> None:
    shaping = {
        "copies": 3,
        "carry": False,
        "trust": "lab",
        "fan_in": 7,
        "prompts": "small",
        "salt": "s",
        "groups": 5,
    }
    found = await learned(outgoing(reflection(0)), **shaping)
    settings = ledger.batches(found.log)[0].plan.settings
    assert settings == plan_settings(found.settings, found.budget_tokens)
    assert (settings.copies, settings.carry, settings.fan_in) == (3, False, 7)
    assert (settings.prompts, settings.playbook_tokens) == ("small", found.budget_tokens)
    assert settings.salt == "s"
    assert settings.groups == 5
    assert settings.templates == templates_hash(ace, "small") != templates_hash(ace, "small", proposes=True)
    assert templates_hash(ace, "small") != templates_hash(ace)
    assert found.settings.model_copy(update=as_configured(settings)) == found.settings


async def test_prompts_are_worded_as_the_manifest_says_and_name_the_budget_it_names() -> None:
    found = await learned(*(outgoing(reflection(n)) for n in range(9)), prompts="small")
    for prompt in found.model.prompts:
        operation = prompt.reply_schema["properties"]["operations"]["items"]["properties"]
        assert operation["type"]["enum"] == ["ADD"]
        assert f"its budget is {found.budget_tokens}" in prompt.system
    assert len({prompt.system for prompt in found.model.prompts}) == 1
    assert not batch_of(ledger.latest(found.log)).degraded


async def test_a_worker_with_other_templates_says_so_in_the_log_and_in_the_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handler, "templates_of", lambda _: "f" * 64)
    found = await learned(*(outgoing(reflection(n)) for n in range(9)))
    (update,) = ledger.messages(found.log, topics.UPDATES, Update)
    assert update.result.reason.startswith(
        "asked with other templates (ffffffffffff) than it was planned with"
    )
    assert capsys.readouterr().out.count("templates_differ") == 1
    assert not batch_of(ledger.latest(found.log)).degraded


def test_a_setting_that_came_later_changes_no_manifest_s_hash_at_its_default() -> None:
    """The ledger checks the hash that the writer of a manifest computed, before there was the field."""
    (published,) = (one.message for one in examples() if one.path.match("batch/v2/full.json"))
    assert isinstance(published, Batch)
    assert plan_hash(published) == "6ecd8c94f9fed434fe82b586fc2270f39a206f3f60fee1d3e4aa115d898ba83d"
    later = planned().model_copy()
    changed = later.plan.model_copy(update={"settings": PlanSettings(prompts="small", playbook_tokens=9)})
    assert plan_hash(later.model_copy(update={"plan": changed})) != plan_hash(later)
    assert PlanSettings.model_validate(changed.settings.model_dump()) == changed.settings


def test_on_recorded_answers_a_batch_from_before_budgets_were_named_is_cut_as_it_was() -> None:
    before = planned()
    named = {"prompts": "small", "playbook_tokens": 9}
    settings = before.plan.settings.model_copy(update=named)
    made = before.model_copy(update={"plan": before.plan.model_copy(update={"settings": settings})})
    assert same_plan(made, before, templates=False)
    assert not same_plan(made, before, templates=True)


def test_another_word_in_a_template_is_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = templates_hash(ace)
    monkeypatch.setattr(ace, "COMBINE", f"{ace.COMBINE} Please.")
    assert templates_hash(ace) != before


# ---- what people have in files


def test_a_bare_number_and_a_bare_name_are_taken_as_they_are_meant() -> None:
    found = read_line('{"task": "t", "answer": "a", "score": 0.5, "success": true, "source": "bench"}', NAME)
    assert isinstance(found, Trace)
    assert (found.score, found.success, found.source) == ({"score": 0.5}, True, Source(name="bench"))
