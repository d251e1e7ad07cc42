"""The arms are what they say: naive is the law's naive, Combee is the product's own algorithm."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.law_fit import run_naive

from combee.adapters.ports import LanguageModel, PoisonError
from combee.core.batching.plan import Base, deal_batch
from combee.core.playbook.retention import total
from combee.core.playbook.versions import empty
from combee.process.settings.model import ModelSettings
from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN, Arm, unshuffled
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.arms.material import measure_updates, reflections
from combee_experiments.arms.services import batch_settings
from combee_experiments.arms.services import learn as learn_with_services
from combee_experiments.data.generated import MOST, lessons, quantities
from combee_experiments.data.generated import reflections as generated_reflections
from combee_experiments.data.samples import PLAYBOOK, Data, family, load
from combee_experiments.running.setup import Setup, data_digest
from combee_experiments.running.virtual_time import run_virtual
from combee_experiments.scoring.lessons import lessons_of
from combee_experiments.shuffling.experiment import by_topic
from combee_schemas.base import Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.scan import Update
from combee_sim.family.knowledge import Knowledge
from combee_sim.family.lessons import key
from combee_sim.inprocess import SimulatedModel
from combee_sim.modes import parse_modes

DATA = family(120)
SETUP = Setup(data=(DATA,), seeds=(0,))
LEARNED = reflections(SETUP, DATA, 0)


def learnt(arm: Arm, batch_size: int, made: Sequence[Reflection] = LEARNED) -> Learnt:
    return run_virtual(learn(SETUP.paced(SimulatedModel(), 0), made, arm, batch_size))


# ---- what the arms are


@pytest.mark.parametrize("batch_size", [3, 20, 50])
def test_naive_proposes_what_the_law_was_fitted_on_repeats_included(batch_size: int) -> None:
    done = learnt(NAIVE, batch_size)
    fitted, playbook = run_naive(LEARNED, batch_size)
    assert done.numbers()["proposed"] == sum(call.entries for call in fitted) > len(done.texts)
    assert done.texts == tuple(entry.content for entry in playbook.entries)


def test_adaptive_makes_the_versions_that_the_services_make() -> None:
    ours = learnt(ADAPTIVE, 40)
    theirs = run_virtual(learn_with_services(SimulatedModel(), LEARNED, batch_settings(40)))
    assert ours.playbook.entries == theirs.playbook.entries
    assert (len(ours.versions), ours.usage.calls) == (theirs.versions, theirs.usage.calls)
    assert ours.playbook.audit == theirs.playbook.audit


def test_plain_is_the_papers_tree_however_many_there_are() -> None:
    assert planned(PLAIN, 40).plan.widths == (6, 1)
    assert planned(PLAIN, 2_500).plan.widths == (50, 1)
    assert planned(PLAIN, 2_500).copies == 2
    assert not PLAIN.carry


def test_naive_is_one_call_without_copies() -> None:
    batch = planned(NAIVE, 100)
    assert (batch.plan.widths, batch.copies) == ((1,), 1)
    assert len(NAIVE.dealt(batch)[0]) == 100


@pytest.mark.parametrize("arm", [PLAIN, ADAPTIVE], ids=lambda arm: arm.name)
def test_groups_are_the_manifests_own(arm: Arm) -> None:
    batch = planned(arm, 50)
    assert arm.dealt(batch) == deal_batch(batch)


def planned(arm: Arm, count: int) -> Batch:
    members = [Member(offset=n, reflection_id=f"r-{n}") for n in range(count)]
    return arm.plan(PLAYBOOK, 1, members, [1_000] * count, Base(version=0, sequence=0))


# ---- time and cost


def test_an_update_takes_its_critical_path_and_k_plus_one_calls() -> None:
    done = learnt(PLAIN, 40)
    assert done.seconds == 3 * 2
    assert done.usage.calls + done.usage.skips == 3 * (6 + 1)


def test_numbers_hold_the_audit_of_all_versions() -> None:
    done = learnt(ADAPTIVE, 50)
    numbers = done.numbers()
    assert [version.reflections for version in done.versions] == [50, 50, 20]
    audit = total(version.audit for version in done.versions if version.audit)
    for name in ("said", "verified", "carried", "kept"):
        assert numbers[name] == pytest.approx(getattr(audit, name) / 120)
    assert numbers["proposed"] >= numbers["entries"] == len(done.texts)


def test_a_result_too_large_for_a_record_is_cut_as_the_service_cuts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (whole,) = learnt(PLAIN, 40, LEARNED[:40]).updates
    monkeypatch.setattr(Update, "max_bytes", len(encode(whole)) * 3 // 4)
    (update,) = learnt(PLAIN, 40, LEARNED[:40]).updates
    assert "left out for size" in update.result.reason
    assert 0 < len(update.result.operations) < len(whole.result.operations)


# ---- material


def test_all_arms_read_the_same_reflections_in_an_order_of_the_seed() -> None:
    again, other = reflections(SETUP, DATA, 0), reflections(SETUP, DATA, 1)
    assert again == LEARNED != other
    assert sorted(one.reflection_id for one in other) == sorted(one.reflection_id for one in LEARNED)


def test_reflections_of_a_real_model_are_made_once_and_a_torn_line_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SimulatedModel()

    @asynccontextmanager
    async def opened(_: Setup, __: int) -> AsyncIterator[LanguageModel]:
        yield model

    monkeypatch.setattr(Setup, "open_model", opened)
    data = family(5)
    setup = Setup(model=ModelSettings(model="real"), data=(data,), cache=tmp_path, concurrency=2)
    made = reflections(setup, data, 0)
    assert (len(made), model.calls) == (5, 10)
    assert reflections(setup, data, 0) == made
    assert model.calls == 10
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    for _ in range(2):
        assert reflections(setup, data, 0) == made
        assert model.calls == 12


class Mute(SimulatedModel):
    """Answers agents, never a reflector; or the other way round."""

    def __init__(self, mute: str) -> None:
        super().__init__()
        self._mute = mute

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        if prompt.reply_name == self._mute:
            error = PoisonError("no usable reply")
            error.usage = Usage(calls=2)
            raise error
        return await super().ask(prompt, priority=priority)


def reflected(model: LanguageModel, data: Data) -> Sequence[Reflection]:
    return run_virtual(reflect_all(model, empty(PLAYBOOK), data.train))


def test_a_run_without_an_answer_is_a_wrong_run_and_is_still_reflected_on() -> None:
    made = reflected(Mute("answer"), family(5))
    assert len(made) == 5
    assert {one.usage.calls for one in made} == {3}


def test_a_run_nothing_can_be_learned_from_has_no_reflection() -> None:
    assert reflected(Mute("reflection"), family(5)) == ()


class Listening(SimulatedModel):
    """Keeps the prompts that it is asked."""

    def __init__(self, data: Data) -> None:
        super().__init__(knowledge=data.knowledge)
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        self.prompts.append(prompt)
        return await super().ask(prompt, priority=priority)


def formula_data(folder: Path) -> Data:
    """Return three Formula rows, none of which names its formula in its question."""
    rows = (
        {
            "context": f"Use formula {name} to answer the question. Answer with a number. Formula: {name} = a / b"
            f', Explanation: a: what is counted. Question: "What is {n} of ten?". Answer:',
            "target": f"0.{n}",
        }
        for n, name in enumerate(("Gross Margin", "Quick Ratio", "Asset Turnover"), 1)
    )
    path = folder / "some_train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path.with_name("some_dev.jsonl").write_bytes(path.read_bytes())
    return load(path)


def test_neither_agents_nor_the_reflector_are_shown_the_formula_and_its_lesson_is_learned_all_the_same(
    tmp_path: Path,
) -> None:
    data = formula_data(tmp_path)
    model = Listening(data)
    made = reflected(model, data)
    assert [prompt.reply_name for prompt in model.prompts] == ["answer", "reflection"] * 3
    for prompt in model.prompts:
        shown = prompt.system + prompt.user
        assert "plain floating point number" in shown
        assert not [name for name in ("Margin", "Quick", "Asset", "Explanation", "a / b") if name in shown]
    counted = lessons_of(data)
    assert counted.names == {"gross margin", "quick ratio", "asset turnover"}
    assert counted.kept(one.key_insight for one in made) == counted.names
    assert counted.known(data.exam, [made[0].key_insight]) == 1 / 3


class InPercent(Listening):
    """Gives every right figure as a percentage."""

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        reply = await super().ask(prompt, priority=priority)
        right = next(row.target for row in self._knowledge.rows if row.question in prompt.user)
        return replace(reply, body={**reply.body, "final_answer": f"{right}%"})


def test_the_feedback_on_an_answer_goes_by_the_protocol(tmp_path: Path) -> None:
    data = formula_data(tmp_path)
    model = InPercent(data)
    reflected(model, data)
    told = [prompt.user for prompt in model.prompts if prompt.reply_name == "reflection"]
    assert len(told) == 3
    assert all("The answer is wrong" in user for user in told)


def test_a_simulated_agent_is_right_where_the_playbook_holds_its_formula_s_lesson(tmp_path: Path) -> None:
    data = formula_data(tmp_path)
    first, *_ = reflected(SimulatedModel(knowledge=data.knowledge), data)
    entry = Entry(id="calc-00001", section="OTHERS", content=first.key_insight)
    book = empty(PLAYBOOK).model_copy(update={"entries": (entry,), "version": 1})
    tags = [
        one.bullet_tags
        for one in run_virtual(reflect_all(SimulatedModel(knowledge=data.knowledge), book, data.train))
    ]
    assert tags == [(BulletTag(id="calc-00001", tag="helpful"),), (), ()]


def test_an_experiment_s_stand_in_has_the_data_and_their_statements_are_part_of_a_cell_s_identity(
    tmp_path: Path,
) -> None:
    data = formula_data(tmp_path)
    setup = Setup(data=(DATA, data))
    lessons_there = lessons_of(data).names
    assert lessons_of(data).kept(one.key_insight for one in reflections(setup, data, 0)) == lessons_there

    async def with_its_model() -> Sequence[Reflection]:
        async with setup.open_model(0) as model:
            return await reflect_all(model, empty(PLAYBOOK), data.train)

    made = run_virtual(with_its_model())
    assert lessons_of(data).kept(one.key_insight for one in made) == lessons_there
    other = Knowledge(rows=tuple(replace(row, statement=row.statement + " ") for row in data.knowledge.rows))
    assert data_digest(replace(data, knowledge=other)) != data_digest(data)


def test_agents_are_shown_the_playbook_they_had() -> None:
    book = learnt(ADAPTIVE, 40).playbook
    (one,) = run_virtual(reflect_all(SimulatedModel(), book, DATA.train[:1]))
    assert one.shown is not None
    assert (one.shown.version, len(one.shown.entry_ids)) == (3, len(book.entries))


# ---- dealing


def test_without_a_shuffle_neighbours_stay_together() -> None:
    assert unshuffled(6, 1, 2, 0) == [[0, 1, 2], [3, 4, 5]]


def test_by_topic_keeps_every_batch_and_puts_like_to_like() -> None:
    sorted_ = by_topic(LEARNED, batch_size=50)
    assert {one.reflection_id for one in sorted_[:50]} == {one.reflection_id for one in LEARNED[:50]}
    topics = [key(one.key_insight) for one in sorted_[:50]]
    assert topics == sorted(topics) != [key(one.key_insight) for one in LEARNED[:50]]


# ---- a stand-in that fails


def test_reflections_are_made_by_mode_and_seed() -> None:
    setup = replace(SETUP, modes=parse_modes(["paraphrase"]))
    first, second = ({one.key_insight for one in reflections(setup, DATA, seed)} for seed in (0, 1))
    plain = {one.key_insight for one in LEARNED}
    assert {key(text) for text in first} == {key(text) for text in second} == {key(text) for text in plain}
    assert len(first) > len(plain)
    assert first != second


def test_an_update_is_measured_by_rule_and_modes() -> None:
    usual = measure_updates(SETUP, DATA, ADAPTIVE, 40, 0)
    assert (usual["wordings_per_lesson"], usual["invented"], usual["contradicted"]) == (1.0, 0, 0)
    modes = parse_modes(["paraphrase", "invented", "contradictions=0.4", "false_no"])
    failing = measure_updates(replace(SETUP, modes=modes), DATA, ADAPTIVE, 40, 0)
    believed = measure_updates(replace(SETUP, modes=modes), DATA, replace(ADAPTIVE, carry=False), 40, 0)
    assert failing["wordings_per_lesson"] > 1.0
    assert (failing["invented"], believed["invented"] > 10) == (0, True)
    assert failing["wrong"] > 0
    other = measure_updates(replace(SETUP, law="lessons_only"), DATA, NAIVE, 40, 0)
    assert other["lessons"] != measure_updates(SETUP, DATA, NAIVE, 40, 0)["lessons"]


# ---- generated lessons


def test_generated_quantities_are_different_and_each_lesson_is_stated() -> None:
    about = quantities(40)
    made = generated_reflections(about, 80, 0)
    assert len({one.name for one in quantities(MOST)}) == MOST
    assert lessons(about, [one.key_insight for one in made]) == 40
    assert Counter(one.key_insight for one in made).most_common(1)[0][1] == 2


def test_more_quantities_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="not 99,999"):
        quantities(99_999)
