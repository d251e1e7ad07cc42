"""What the stand-in does about entries: it merges repeats, corrects what is wrong and removes what harms."""

from collections.abc import Sequence
from typing import Any

from combee.core.methods.ace import aggregate_prompt, combine_prompt
from combee.core.playbook.operations import read_operations
from combee.core.playbook.results.guards import guarded
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_sim.family.blurring import blurred
from combee_sim.family.falsehoods import opposite
from combee_sim.family.family import lessons
from combee_sim.family.wordings import all_wordings
from combee_sim.inprocess import as_request
from combee_sim.law.law import Law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.respond import respond
from support.worded import FORMULA, TAG

LESSONS = lessons()
ALL = Law(half_tokens=1e12, steepness=1.0)
NOTHING = Law(half_tokens=1e-9, steepness=9.0)


def with_entries(*contents: str, helpful: int = 0, harmful: int = 0) -> Playbook:
    entries = tuple(
        Entry(id=f"calc-{n:05d}", section="OTHERS", content=content, helpful=helpful, harmful=harmful)
        for n, content in enumerate(contents, 1)
    )
    return empty("p").model_copy(update={"entries": entries})


def taught(lesson: str, *harmful: str) -> Reflection:
    tags = tuple(BulletTag(id=entry_id, tag="harmful") for entry_id in harmful)
    return Reflection(reflection_id=f"r {lesson}", playbook="p", key_insight=lesson, bullet_tags=tags)


def reply(prompt: Prompt, *, law: Law = ALL, modes: Modes = NO_MODES, seed: int = 0) -> dict[str, Any]:
    return dict(respond(as_request(prompt), seed, law=law, modes=modes).reply)


def effects(answer: dict[str, Any]) -> Sequence[tuple[str, list[str], list[int]]]:
    return [(one["type"], one["entry_ids"], one["sources"]) for one in answer["operations"]]


def test_two_entries_that_say_a_lesson_of_the_items_in_two_wordings_are_merged() -> None:
    for lesson in (*LESSONS, FORMULA, TAG):
        first, second, third, *_ = all_wordings(lesson)
        base = with_entries(second, "Feed the fish.", third)
        items = [taught("Lock the gate."), taught(first)]
        answer = reply(aggregate_prompt(base, items))
        merge = ("MERGE", ["calc-00001", "calc-00003"], [2])
        assert sorted(effects(answer)) == [("ADD", [], [1]), merge]
        assert answer["known"] == []
        read = read_operations(answer, [(item.reflection_id,) for item in items]).operations
        texts = {item.reflection_id: item.key_insight for item in items}
        assert guarded(base, read, texts).operations == read


def test_repeated_entries_are_merged_where_they_are_noticed_and_the_prompt_has_the_operation() -> None:
    base = with_entries(*all_wordings(LESSONS[0])[:2])
    modes = Modes(paraphrase=0.8)
    kinds = [
        effects(reply(aggregate_prompt(base, [taught(LESSONS[0])]), modes=modes, seed=n))[:1]
        for n in range(50)
    ]
    assert 25 < sum(bool(kind) and kind[0][0] == "MERGE" for kind in kinds) < 48
    small = reply(aggregate_prompt(base, [taught(LESSONS[0])], settings=PlanSettings(prompts="small")))
    assert (effects(small), small["known"]) == ([], [{"n": 1, "entry_id": "calc-00001"}])


def test_repeated_entries_that_no_item_is_about_stay() -> None:
    base = with_entries(*all_wordings(LESSONS[0])[:2])
    assert effects(reply(aggregate_prompt(base, [taught(LESSONS[1])]))) == [("ADD", [], [1])]


def test_an_overloaded_call_blurs_what_it_merges() -> None:
    base = with_entries(*all_wordings(LESSONS[0])[:2])
    prompt = aggregate_prompt(base, [taught(LESSONS[0])])
    answer = reply(prompt, law=NOTHING, modes=Modes(overload="blurred"))
    assert effects(answer) == [("MERGE", ["calc-00001", "calc-00002"], [1])]
    assert answer["operations"][0]["content"] == blurred(LESSONS[0])


def test_an_entry_that_items_call_harmful_is_removed() -> None:
    base = with_entries("Guess the figure.", "Feed the fish.", harmful=1)
    items = [taught("Lock the gate."), taught("Look it up.", "calc-00001"), taught("Ask.", "calc-00001")]
    answer = reply(aggregate_prompt(base, items))
    assert ("REMOVE", ["calc-00001"], [2, 3]) in effects(answer)
    read = read_operations(answer, [(item.reflection_id,) for item in items]).operations
    assert sum(one.kind == OperationKind.REMOVE for one in read) == 1


def test_an_entry_that_more_runs_found_helpful_stays() -> None:
    base = with_entries("Guess the figure.", helpful=5, harmful=1)
    items = [taught("Look it up.", "calc-00001")]
    assert effects(reply(aggregate_prompt(base, items))) == [("ADD", [], [1])]


def test_a_harmful_entry_that_is_corrected_or_repeated_is_not_removed() -> None:
    wrong = str(opposite(LESSONS[0]))
    corrected = reply(aggregate_prompt(with_entries(wrong), [taught(LESSONS[0], "calc-00001")]))
    assert effects(corrected) == [("UPDATE", ["calc-00001"], [1])]
    repeated = reply(aggregate_prompt(with_entries(LESSONS[0]), [taught(LESSONS[0], "calc-00001")]))
    assert effects(repeated) == []


def test_what_an_overloaded_call_overlooks_removes_nothing() -> None:
    base = with_entries("Guess the figure.", harmful=1)
    items = [taught("Look it up.", "calc-00001")]
    assert effects(reply(aggregate_prompt(base, items), law=NOTHING)) == []


def test_a_combine_call_passes_removals_on() -> None:
    base = with_entries("Guess the figure.", "Feed the fish.")
    removal = Operation(kind=OperationKind.REMOVE, entry_ids=("calc-00001",))
    add = Operation(kind=OperationKind.ADD, section="OTHERS", content="Look it up.")
    answer = reply(combine_prompt(base, [add, removal]))
    assert effects(answer) == [("ADD", [], [1]), ("REMOVE", ["calc-00001"], [2])]
