"""The stand-in fails in the ways it is told to, reproducibly, and in none when it is told nothing."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import pytest

from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.model import Prompt
from combee_sim.family.conventions import possible, read_convention
from combee_sim.family.falsehoods import invented, is_invented, is_opposite, opposite
from combee_sim.family.family import latent, lessons, one_each, questions
from combee_sim.family.lessons import key, subject
from combee_sim.family.quantities import QUANTITIES
from combee_sim.family.wordings import FEWEST, all_wordings, plain
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.law import LAW, Law
from combee_sim.law.rules import IN_FORCE, RULES, parse_law
from combee_sim.modes import NO_MODES, USUAL, Modes, parse_modes
from combee_sim.roles.failing import CORRELATED_LESSONS
from combee_sim.roles.respond import respond
from combee_sim.server.standin import CallLog, SimOptions, StandIn
from support.rows import each_row
from support.worded import FORMULA

EVERYTHING = Law(half_tokens=1e12, steepness=1.0)
"""Nothing is lost to overload."""
LESSONS = lessons()
RATIO = (
    "Quick Ratio: compute it with Quick Ratio = (Cash + Receivables) / Liabilities "
    "and give the plain value, not a percentage, to 2 decimals."
)
SAMPLES = (
    *LESSONS,
    FORMULA,
    RATIO,
    "When the result of an equation is below zero, try subtraction and division for the missing operators.",
    "Use the tag LongTermDebt for the entity in a sentence that states the long term debt.",
    "Do not use the tag LongTermDebt for the entity in a sentence that states the long term debt.",
    "For faulty items the shop pays the label.",
    "Asked “How many boxes does the order fill?”, answer 4.",
)


def rng(seed: int) -> Random:
    return Random(seed)


def request(role: str, items: Sequence[Mapping[str, Any]], entries: Sequence[str] = ()) -> dict[str, Any]:
    """Return a request as any client may write it: entries and data line by line."""
    shown = [f"[calc-{n:05d}] helpful=0 harmful=0 :: {entry}" for n, entry in enumerate(entries, 1)]
    text = "\n".join([f'Reply with JSON: "{role}".', *shown, *map(json.dumps, items)])
    return {"messages": [{"role": "user", "content": text}]}


def aggregated(
    texts: Sequence[str], modes: Modes, *, entries: Sequence[str] = (), seed: int = 0, law: Law = EVERYTHING
) -> list[dict[str, Any]]:
    items = [{"n": n, "key_insight": text} for n, text in enumerate(texts, 1)]
    reply = respond(request("operations", items, entries), seed, law=law, modes=modes).reply
    return list(reply["operations"])


def contents(operations: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(operation["content"]) for operation in operations]


@cache
def runs(count: int) -> Sequence[dict[str, Any]]:
    drawn = questions(rng(7), QUANTITIES[:4])
    asked = [next(drawn) for _ in range(count)]
    return [{"task": one.text, "answer": "0", "target": one.target} for one in asked]


def reflected(modes: Modes, *, seed: int = 0, count: int = 200) -> list[str]:
    made = (respond(request("key_insight", [run]), seed, modes=modes) for run in runs(count))
    return [str(said.reply["key_insight"]) for said in made]


# ---- wordings


def test_every_lesson_has_five_wordings_with_one_meaning() -> None:
    assert FEWEST >= 5
    for lesson in SAMPLES:
        wordings = all_wordings(lesson)
        assert len(set(wordings)) == len(wordings) >= FEWEST, lesson
        assert {key(wording) for wording in wordings} == {key(lesson)}
        assert {subject(wording) for wording in wordings} == {subject(lesson)}
        assert {plain(wording) for wording in wordings} == {lesson}


def test_the_rule_for_repeats_takes_no_two_wordings_for_one_lesson() -> None:
    for lesson in (LESSONS[0], FORMULA, SAMPLES[-1]):
        assert not any(same_lesson(*pair) for pair in combinations(all_wordings(lesson), 2))


def test_every_convention_is_read_back_from_every_wording() -> None:
    for quantity in QUANTITIES:
        for convention in possible(quantity.name, (quantity.first, quantity.second), 1):
            for wording in all_wordings(convention.sentence()):
                assert read_convention(wording) == convention


def test_an_agent_computes_from_any_wording() -> None:
    question = one_each(rng(1))[0]
    for wording in all_wordings(latent(QUANTITIES[0]).sentence()):
        said = respond(request("final_answer", [{"question": question.text}], [wording]), 0).reply
        assert said["final_answer"] == question.target


def test_a_text_in_other_words_than_any_template_is_its_own_meaning() -> None:
    text = "Report the dock idle index as you like."
    assert plain(text) == text
    assert plain("a" * 300_000) == "a" * 300_000


# ---- paraphrase


def test_the_reflector_words_one_lesson_in_many_ways_by_trace_and_seed() -> None:
    modes = parse_modes(["paraphrase"])
    said = reflected(modes)
    about = [text for text in said if key(text) == key(LESSONS[0])]
    assert len(set(about)) >= 5
    assert {key(text) for text in said} == {key(text) for text in reflected(NO_MODES)}
    assert said == reflected(modes)
    assert said != reflected(modes, seed=1)


def test_wordings_of_one_lesson_are_one_lesson_to_the_law() -> None:
    few = Law(half_tokens=1.0, steepness=1.0)
    assert len(aggregated(all_wordings(LESSONS[0]), Modes(paraphrase=1.0), law=few)) <= 1
    assert len(aggregated(LESSONS[:2], NO_MODES)) == 2


def test_wordings_that_meet_in_a_call_are_merged_or_stay_by_chance() -> None:
    wordings = all_wordings(LESSONS[0])
    (merged,) = aggregated(wordings, Modes(paraphrase=1.0))
    assert merged["sources"] == [1, 2, 3, 4, 5, 6]
    apart = aggregated(wordings, Modes(paraphrase=0.0))
    assert sorted(n for operation in apart for n in operation["sources"]) == [1, 2, 3, 4, 5, 6]
    assert {key(content) for content in contents(apart)} == {key(LESSONS[0])}
    assert len(apart) == 6
    counts = [len(aggregated(wordings, Modes(paraphrase=0.8), seed=seed)) for seed in range(40)]
    assert 1.5 < sum(counts) / len(counts) < 2.5
    assert min(counts) == 1


def test_an_aggregator_may_say_a_lesson_in_other_words() -> None:
    said = contents(aggregated(LESSONS, Modes(paraphrase=1.0)))
    assert {key(text) for text in said} == set(map(key, LESSONS))
    assert 0 < sum(text not in LESSONS for text in said) < len(LESSONS) / 2


def test_what_an_entry_says_already_is_said_in_its_words_where_it_is_noticed() -> None:
    entry, other = all_wordings(LESSONS[0])[2:4]
    (seen,) = aggregated([other], Modes(paraphrase=1.0), entries=[entry])
    (unseen,) = aggregated([other], Modes(paraphrase=0.0), entries=[entry])
    assert (seen["type"], seen["content"]) == ("ADD", entry)
    assert unseen["content"] != entry
    assert key(unseen["content"]) == key(entry)


# ---- invented


@pytest.mark.parametrize("words", [[], ["paraphrase"]])
def test_a_call_makes_up_as_many_lessons_as_it_is_told_each_different(words: list[str]) -> None:
    modes = parse_modes(["invented=2", *words])
    calls = [aggregated(LESSONS[n : n + 4], modes) for n in range(0, 60, 4)]
    made_up = [[text for text in contents(call) if is_invented(text)] for call in calls]
    assert {len(texts) for texts in made_up} == {2}
    assert len({key(text) for texts in made_up for text in texts}) == 30
    assert all(operation["sources"][0] in {1, 2, 3, 4} for call in calls for operation in call)
    assert calls[0] == aggregated(LESSONS[:4], modes)


def test_a_fraction_of_an_invented_lesson_is_a_chance() -> None:
    modes = parse_modes(["invented=0.5"])
    calls = [aggregated(LESSONS[:2], modes, seed=seed) for seed in range(60)]
    assert 15 < sum(len(call) - 2 for call in calls) < 45


def test_a_call_that_reads_nothing_makes_nothing_up() -> None:
    assert aggregated([], parse_modes(["invented=2"])) == []


def test_correlated_inventions_are_few_and_stated_over_and_over() -> None:
    modes = parse_modes(["correlated=0.3"])
    said = [text for text in reflected(modes) if is_invented(text)]
    assert 40 < len(said) < 80
    assert len(set(said)) <= CORRELATED_LESSONS
    others = {text for text in reflected(modes, seed=1) if is_invented(text)}
    assert not set(said) & others


def test_an_invented_lesson_is_about_nothing_that_there_is() -> None:
    made = [invented("test", n) for n in range(200)]
    assert all(map(is_invented, made))
    assert not any(map(is_invented, SAMPLES))
    assert not any(map(is_opposite, made))


def test_a_run_without_a_lesson_has_none_in_any_mode() -> None:
    said = respond(
        request("key_insight", [{"task": ""}]), 0, modes=parse_modes(["paraphrase", "correlated=1"])
    )
    assert not said.reply["key_insight"]


# ---- contradictions


def test_an_opposite_is_about_the_same_and_says_something_else_in_any_wording() -> None:
    with_opposite = [text for text in SAMPLES[:-2] if not text.startswith("When")]
    assert with_opposite
    for lesson in with_opposite:
        other = opposite(lesson)
        assert other is not None, lesson
        assert opposite(other) == lesson
        assert subject(other) == subject(lesson)
        assert {is_opposite(wording) for wording in all_wordings(lesson)} == {is_opposite(lesson)}, lesson
        assert {is_opposite(wording) for wording in all_wordings(other)} == {not is_opposite(lesson)}, lesson


def test_what_has_no_opposite_is_said_as_it_is() -> None:
    assert opposite("For faulty items the shop pays the label.") is None


def test_a_share_of_reflections_states_the_opposite() -> None:
    said = reflected(parse_modes(["contradictions=0.2"]))
    assert 20 < sum(map(is_opposite, said)) < 60
    assert not any(map(is_opposite, reflected(NO_MODES)))


def test_a_contradiction_is_mostly_noticed_and_sometimes_not() -> None:
    modes = parse_modes(["contradictions"])
    both = [LESSONS[0], LESSONS[0], str(opposite(LESSONS[0]))]
    calls = [contents(aggregated(both, modes, seed=seed)) for seed in range(100)]
    assert sum(texts == [LESSONS[0]] for texts in calls) > 60
    assert sum(len(texts) == 2 for texts in calls) > 5
    kinds = [aggregated(both[:1], modes, entries=both[2:], seed=seed)[0]["type"] for seed in range(100)]
    assert kinds.count("UPDATE") > 60
    assert kinds.count("ADD") > 5


# ---- options


def test_modes_are_read_and_told_as_they_are_given() -> None:
    assert parse_modes(()) == NO_MODES
    assert NO_MODES.summary() == ()
    assert parse_modes(["paraphrase=0", "invented"]).summary() == ("paraphrase=0", "invented=2")
    assert {name.partition("=")[0] for name in parse_modes(USUAL).summary()} == set(USUAL)


@each_row("wrong", ["lies", "invented=many", "paraphrase=1.5", "contradictions=-1", "invented=nan"])
def test_a_mode_that_does_not_exist_or_a_wrong_rate_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        parse_modes([wrong])


def test_a_counting_rule_is_known_by_its_name() -> None:
    assert parse_law(IN_FORCE) == LAW
    assert {name: law.count.__name__ for name, law in RULES.items()} == {name: name for name in RULES}
    with pytest.raises(ValueError, match="lessons_only"):
        parse_law("none")


def test_a_counting_rule_decides_what_is_kept() -> None:
    kept = {name: len(aggregated(LESSONS[:40], NO_MODES, law=law)) for name, law in RULES.items()}
    assert kept["lessons_only"] < kept[IN_FORCE]


class StoppedClock:
    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


async def test_server_and_model_in_process_answer_by_rule_and_modes() -> None:
    law, modes = RULES["lessons_only"], parse_modes(USUAL)
    items = "\n".join(json.dumps({"n": n, "key_insight": text}) for n, text in enumerate(LESSONS, 1))
    prompt = Prompt(system='Reply with "operations".', user=items, reply_name="operations", reply_schema={})
    body = {"messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": items}]}
    wanted = respond(body, 3, law=law, modes=modes).reply
    assert wanted != respond(body, 3).reply

    reply = await SimulatedModel(seed=3, law=law, modes=modes).ask(prompt)
    assert reply.body == wanted

    stand_in = StandIn(SimOptions(seed=3, law=law, modes=modes), StoppedClock(), CallLog(None))
    assert stand_in.begin(body).answer.reply == wanted
    assert stand_in.stats()["law"] == "lessons_only"
    assert len(stand_in.stats()["modes"]) == len(USUAL)
