"""The root's check: what was learned is in the result, whatever the model reports about itself."""

from asyncio import get_running_loop, run
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any

import pytest

from combee.adapters.ports import CutOffError, PoisonError, PromptTooLongError
from combee.core.playbook.operations import MAX_CONTENT_CHARS
from combee.core.playbook.results.coverage import Coverage, is_vague
from combee.core.playbook.versions import empty
from combee.scan.aggregate import Aggregator
from combee_schemas.base import Shown, Source, Usage
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan, PlanSettings, Trust
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import GroupMember, NodeResult, Operation, OperationKind, Partial
from support.models import Answer, ModelClient, ScriptedModel, checked, echo, is_combine, is_control, items
from support.rows import each_row
from support.scanned import contents, covered, learned, reflections

LESSONS = tuple(f"Orders of kind {kind} are paid back to the card that paid them." for kind in "abcdefgh")


# ---- overload, in every way in which a model may report it


def overlooking(report: str) -> Answer:
    """Combine to the first half of the items only, and say about the others what ``report`` says."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        whole = dict(echo(prompt))
        if not is_combine(prompt):
            return whole
        kept = whole["operations"][: len(whole["operations"]) // 2]
        rest = [n for operation in whole["operations"][len(kept) :] for n in operation["sources"]]
        if report == "lumped":
            kept[0] = {**kept[0], "sources": [*kept[0]["sources"], *rest]}
        named = {
            "dropped": rest if report == "named" else [],
            "known": [{"n": n, "entry_id": "misc-00001"} for n in rest] if report == "claimed known" else [],
        }
        return {**whole, "operations": kept, **named}

    return answer


OTHER = empty("p").model_copy(
    update={"version": 1, "next_id": 2, "entries": (Entry(id="misc-00001", section="OTHERS", content="Hi."),)}
)


@pytest.mark.parametrize("report", ["silent", "named", "lumped", "claimed known"])
async def test_no_lesson_is_lost_whatever_the_model_says_of_what_it_overlooked(report: str) -> None:
    result = await learned(overlooking(report), reflections(*LESSONS), OTHER)
    assert contents(result) == sorted(LESSONS)
    by_content = {operation.content: operation.evidence for operation in result.operations}
    assert by_content == {lesson: (f"r-{n}",) for n, lesson in enumerate(LESSONS)}
    assert sorted(covered(result).values()) == ["carried"] * 4 + ["words"] * 4


async def test_off_the_paper_s_protocol_is_believed() -> None:
    result = await learned(overlooking("lumped"), reflections(*LESSONS), carry=False)
    assert len(contents(result)) == 4
    assert all(seen.said and not seen.covered for seen in result.seen)


async def test_the_audit_tells_what_the_model_said_from_what_was_verified() -> None:
    result = await learned(overlooking("lumped"), reflections(*LESSONS))
    assert sum(seen.said for seen in result.seen) == 8
    silent = await learned(overlooking("silent"), reflections(*LESSONS))
    assert sum(seen.said for seen in silent.seen) == 4


async def test_a_lesson_that_no_node_proposed_is_asked_about_once_more() -> None:
    model = ScriptedModel()
    first = True

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        nonlocal first
        whole = dict(echo(prompt))
        if LESSONS[0] in prompt.user and not is_combine(prompt) and first:
            first = False
            kept = [one for one in whole["operations"] if one["content"] != LESSONS[0]]
            return {**whole, "operations": kept}
        return whole

    model.answer = answer
    result = await learned(model, reflections(*LESSONS))
    assert contents(result) == sorted(LESSONS)
    last = model.prompts[-1]
    assert [item["key_insight"] for item in items(last)] == [LESSONS[0]]
    assert covered(result)["r-0"] == "carried"


async def test_what_no_answer_says_is_carried_word_for_word() -> None:
    def nothing(_: Prompt) -> Mapping[str, Any]:
        return {"operations": [], "dropped": [], "known": []}

    result = await learned(nothing, reflections(*LESSONS, LESSONS[0]))
    assert contents(result) == sorted(LESSONS)
    assert ("r-0", "r-8") in [operation.evidence for operation in result.operations]


async def test_a_lesson_longer_than_an_entry_is_carried_as_far_as_one_holds_it() -> None:
    long = "weigh parcels " * 1_000
    result = await learned(lambda _: {"operations": []}, reflections(LESSONS[0], long), groups=1)
    (cut,) = (text for text in contents(result) if text != LESSONS[0])
    assert long.startswith(cut[:-1])
    assert covered(result) == {"r-0": "carried", "r-1": "carried"}


async def test_a_check_call_shows_as_much_of_a_lesson_as_an_entry_holds() -> None:
    model = ScriptedModel(_blurring)
    await learned(model, reflections(LESSONS[0], "weigh parcels " * 1_000), groups=1)
    (check,) = (prompt for prompt in model.prompts if prompt.reply_name == "check")
    assert max(len(item["lesson"]) for item in items(check) if "lesson" in item) == MAX_CONTENT_CHARS - 1


def _blurring(prompt: Prompt) -> Mapping[str, Any]:
    added = {"type": "ADD", "section": "", "content": "Parcels are weighed.", "sources": [1, 2]}
    return {"operations": [added] if prompt.reply_name == "operations" else []}


# ---- the check call


def reworded(prompt: Prompt) -> Mapping[str, Any]:
    """Propose every lesson in other words, which contain it."""
    whole = dict(echo(prompt))
    if is_combine(prompt):
        return whole
    said = [{**one, "content": f"Please note: {one['content']} Thanks."} for one in whole["operations"]]
    return {**whole, "operations": said}


async def test_one_check_call_asks_about_all_that_nothing_witnesses() -> None:
    model = ScriptedModel(reworded)
    result = await learned(model, reflections(*LESSONS))
    checks = [prompt for prompt in model.prompts if prompt.reply_name == "check"]
    assert len(checks) == 1
    assert model.prompts[-1] is checks[0]
    assert set(covered(result).values()) == {"check"}
    assert len(contents(result)) == len(LESSONS)


async def test_an_entry_that_an_unsupported_update_leaves_says_the_lesson_that_a_lost_proposal_says_too() -> (
    None
):
    fee, other = "Opened parcels cost a fee.", "A fee is what opened parcels come with."
    base = OTHER.model_copy(update={"entries": (OTHER.entries[0].model_copy(update={"content": fee}),)})

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            lessons, statements = (
                {item[name]: item["n"] for item in items(prompt) if name in item}
                for name in ("lesson", "statement")
            )
            return {
                "covered": [{"lesson": lessons[other], "statement": statements[fee], "quote": fee}],
                "lost": [],
            }
        whole = dict(echo(prompt))
        if is_combine(prompt):
            kept = [one for one in whole["operations"] if one["content"] != other]
            vague = {
                "type": "UPDATE",
                "entry_ids": ["misc-00001"],
                "content": "Fees as usual.",
                "sources": [1],
            }
            return {**whole, "operations": [*kept, {"section": "OTHERS", **vague}]}
        return whole

    model = ScriptedModel(answer)
    model.answers_checks = False
    result = await learned(model, reflections(other, *LESSONS[:6]), base)
    assert contents(result) == sorted(LESSONS[:6])
    assert [(one.entry_id, one.evidence) for one in result.known] == [("misc-00001", ("r-0",))]
    assert covered(result)["r-0"] == "check"


async def test_of_two_wordings_that_a_combine_lost_one_is_carried() -> None:
    wordings = "Opened parcels cost a fee.", "A fee is what opened parcels come with."

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            lessons, statements = (
                {item[name]: item["n"] for item in items(prompt) if name in item}
                for name in ("lesson", "statement")
            )
            said = {
                "lesson": lessons[wordings[1]],
                "statement": statements[wordings[0]],
                "quote": wordings[0],
            }
            return {"covered": [said], "lost": []}
        whole = dict(echo(prompt))
        if is_combine(prompt):
            kept = [one for one in whole["operations"] if one["content"] not in wordings]
            return {**whole, "operations": kept}
        return whole

    model = ScriptedModel(answer)
    model.answers_checks = False
    result = await learned(model, reflections(*wordings, *LESSONS[:6]))
    assert contents(result) == sorted([wordings[0], *LESSONS[:6]])
    assert ("r-0", "r-1") in [operation.evidence for operation in result.operations]
    assert [covered(result)[f"r-{n}"] for n in range(2)] == ["carried", "proposal"]


PAID, FREE = "Opened parcels always cost the usual fee.", "Opened parcels never cost the usual fee."


def keeping(kept: str, against: str) -> ScriptedModel:
    """Return a model that combines to all but one lesson, and says that the kept one contradicts this one."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            lessons, statements = (
                {item[name]: item["n"] for item in items(prompt) if name in item}
                for name in ("lesson", "statement")
            )
            if against not in lessons or kept not in statements:
                return {"covered": []}
            said = {"lesson": lessons[against], "statement": statements[kept], "quote": kept}
            return {"covered": [], "against": [said]}
        whole = dict(echo(prompt))
        if is_combine(prompt):
            return {**whole, "operations": [one for one in whole["operations"] if one["content"] != against]}
        return whole

    model = ScriptedModel(answer)
    model.answers_checks = False
    return model


@each_row(
    ("taught", "is_carried"),
    [
        ((PAID, PAID, FREE), False),
        ((PAID, FREE), True),
        ((PAID, FREE, FREE), True),
        ((PAID, PAID, PAID, PAID, FREE, FREE, FREE), True),
    ],
)
def test_what_contradicts_a_statement_that_more_say_is_a_conflict_and_is_not_carried(
    taught: tuple[str, ...],
    is_carried: bool,  # noqa: FBT001 - a row
) -> None:
    result = run(learned(keeping(PAID, FREE), reflections(*taught, *LESSONS[:6])))
    assert (FREE in contents(result)) is is_carried
    saying = tuple(f"r-{n}" for n, text in enumerate(taught) if text == FREE)
    found = [(conflict.against, conflict.content, conflict.evidence) for conflict in result.conflicts]
    assert found == ([] if is_carried else [(PAID, FREE, saying)])
    left = [seen for seen in result.seen if seen.dropped]
    assert [(seen.reflection_id, seen.text) for seen in left] == [(one, FREE) for one in saying if found]


async def test_a_check_call_that_calls_another_lesson_a_contradiction_is_not_believed() -> None:
    result = await learned(
        keeping(LESSONS[0], FREE), reflections(LESSONS[0], LESSONS[0], FREE, *LESSONS[1:6])
    )
    assert FREE in contents(result)
    assert result.conflicts == ()


async def test_where_sources_are_proven_one_that_repeats_itself_outvotes_nobody() -> None:
    rows: tuple[tuple[str, Trust, bool], ...] = (
        ("mmmh", "team", True),
        ("abch", "team", False),
        ("abch", "public", True),
        ("abcdh", "public", False),
    )
    for names, trust, is_carried in rows:
        taught, others = (*[PAID] * (len(names) - 1), FREE), LESSONS[:6]
        given = reflections(*taught, *others)
        for n, name in enumerate(names):
            given[n] = given[n].model_copy(update={"source": Source(name=name, proven="secret")})
        result = await learned(keeping(PAID, FREE), given, trust=trust)
        assert (FREE in contents(result)) is is_carried, (names, trust)


async def test_a_proof_that_a_record_claims_outvotes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the root the records are read again from the log, where a producer may have written any source."""
    check = Aggregator.checked

    async def of_records(
        aggregator: Aggregator,
        base: Playbook,
        plan: Plan,
        result: NodeResult,
        members: Sequence[GroupMember],
    ) -> NodeResult:
        claiming = [
            GroupMember(
                offset=member.offset,
                reflection=member.reflection.model_copy(
                    update={"source": Source(name=f"name {member.offset}", proven="secret")}
                ),
            )
            for member in members
        ]
        return await check(aggregator, base, plan, result, claiming)

    monkeypatch.setattr(Aggregator, "checked", of_records)
    given = reflections(PAID, PAID, PAID, FREE, *LESSONS[:6])
    given[3] = given[3].model_copy(update={"source": Source(name="shop", proven="secret")})
    assert FREE in contents(await learned(keeping(PAID, FREE), given, trust="team"))


async def test_names_that_a_lab_counted_outvote_nobody_once_the_posture_is_another() -> None:
    said = Entry(id="misc-00001", section="OTHERS", content=PAID, sources=tuple("abcd"), evidence_count=4)
    base = empty("p").model_copy(update={"version": 1, "next_id": 2, "entries": (said,), "trust": "lab"})
    given = reflections(FREE, *LESSONS[:6], source=Source(name="shop", proven="secret"))
    postures: tuple[Trust, ...] = ("team", "public")
    for trust in postures:
        assert (await learned(keeping(PAID, FREE), given, base, trust=trust)).conflicts == ()


async def test_a_lesson_that_several_reflections_word_alike_is_asked_about_once() -> None:
    model = ScriptedModel(reworded)
    result = await learned(model, reflections(*LESSONS, *LESSONS))
    (check,) = (prompt for prompt in model.prompts if prompt.reply_name == "check")
    assert sorted(item["lesson"] for item in items(check) if "lesson" in item) == sorted(LESSONS)
    assert set(covered(result).values()) == {"check"}


async def test_a_lesson_that_several_word_alike_is_asked_about_again_once() -> None:
    model = ScriptedModel(lambda _: {"operations": []})
    await learned(model, reflections(*[LESSONS[0]] * 4), groups=1)
    assert [len(items(prompt)) for prompt in model.prompts] == [4, 1]


async def test_a_result_that_words_witness_needs_no_check_call() -> None:
    model = ScriptedModel()
    await learned(model, reflections(*LESSONS))
    assert {prompt.reply_name for prompt in model.prompts} == {"operations"}


async def test_a_check_without_its_figure_counts_as_no() -> None:
    lessons = reflections("Opened parcels are refunded within 14 days.", "Closed parcels are free of charge.")

    def blurred(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            quote = "refunded in the usual time"
            wrong = [{"lesson": n, "statement": 1, "quote": quote} for n in (1, 2)]
            return {"covered": wrong, "lost": []}
        said = "Opened parcels are refunded in the usual time."
        return {"operations": [{"type": "ADD", "section": "", "content": said, "sources": [1, 2]}]}

    model = ScriptedModel(blurred)
    model.answers_checks = False
    result = await learned(model, lessons)
    assert lessons[0].key_insight in contents(result)


def _proposing(operations: Sequence[Mapping[str, Any]], _: Prompt) -> Mapping[str, Any]:
    return {"operations": operations}


async def test_a_check_call_is_not_asked_about_statements_that_lack_a_figure_of_each_lesson() -> None:
    lessons = reflections(
        "Opened parcels come back within 14 days.", "Closed parcels come back within 30 days."
    )
    said = [
        "Parcels come back in the usual time.",
        "Send parcels back by mail within 30 days, closed ones only.",
    ]
    for stated, asked in ((said, [said[1:]]), (said[:1], [])):
        operations = [{"type": "ADD", "section": "", "content": one, "sources": [1, 2]} for one in stated]
        model = ScriptedModel(partial(_proposing, operations))
        await learned(model, lessons, groups=1)
        checks = [items(prompt) for prompt in model.prompts if prompt.reply_name == "check"]
        assert [[item["statement"] for item in one if "statement" in item] for one in checks] == asked


async def test_a_check_call_that_fails_for_good_counts_as_no() -> None:
    def failing(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            raise PoisonError("no usable reply")
        return reworded(prompt)

    model = ScriptedModel(failing)
    model.answers_checks = False
    result = await learned(model, reflections(*LESSONS))
    assert contents(result) == sorted(LESSONS)
    assert "no usable reply" in result.reason


async def test_a_check_call_that_is_too_long_is_halved() -> None:
    def short(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            if len(items(prompt)) > 6:
                raise PromptTooLongError("too long")
            return checked(prompt)
        return reworded(prompt)

    model = ScriptedModel(short)
    model.answers_checks = False
    result = await learned(model, reflections(*LESSONS))
    assert set(covered(result).values()) == {"check"}
    assert result.usage.splits > 0


async def test_a_check_call_whose_reply_is_cut_off_is_halved_down_to_one_lesson() -> None:
    def short(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            if sum("lesson" in item for item in items(prompt)) > 1:
                raise CutOffError("cut off")
            return checked(prompt)
        return reworded(prompt)

    model = ScriptedModel(short)
    model.answers_checks = False
    result = await learned(model, reflections(*LESSONS))
    assert set(covered(result).values()) == {"check"}
    assert result.reason == ""
    checks = [items(prompt) for prompt in model.prompts if prompt.reply_name == "check"]
    assert len(checks) == 2 * len(LESSONS) - 1, "no statement is asked about apart"


async def test_a_check_call_whose_reply_is_always_cut_off_counts_as_no() -> None:
    def endless(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            error = CutOffError("cut off")
            error.usage = Usage(calls=2, re_asks=1)
            raise error
        return reworded(prompt)

    model = ScriptedModel(endless)
    model.answers_checks = False
    result = await learned(model, reflections(*LESSONS[:2]), groups=1)
    assert contents(result) == sorted(LESSONS[:2])
    assert result.reason == "cut off"
    assert (result.usage.calls, result.usage.splits) == (1 + 3 * 2 + 1, 1), "every reply is paid for"


async def test_an_answer_about_what_is_left_that_is_unusable_is_paid_for_and_told_and_the_lesson_is_carried() -> (
    None
):
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        unusable = [{"type": "ADD", "content": ""}] if prompt.begun else []
        return {"operations": unusable, "dropped": [], "known": []}

    model = ScriptedModel(answer)
    result = await learned(model, reflections(LESSONS[0]), groups=1)
    assert (contents(result), covered(result)) == ([LESSONS[0]], {"r-0": "carried"})
    assert result.reason == "none of 1 operations was usable"
    assert (result.usage.calls, len(result.requests), model.calls) == (2, 1, 2), (
        "no result rests on that reply"
    )


async def test_what_is_left_is_asked_about_again_in_parts_of_a_group_s_size_and_halved_if_cut_off() -> None:
    again: list[int] = []

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if not prompt.begun or is_combine(prompt):
            return {"operations": [], "dropped": [], "known": []}
        again.append(len(items(prompt)))
        if len(items(prompt)) > 1:
            raise CutOffError("cut off")
        whole = dict(echo(prompt))
        said = [{**one, "content": one["content"].replace("Orders", "ORDERS")} for one in whole["operations"]]
        return {**whole, "operations": said}

    result = await learned(answer, reflections(*LESSONS), groups=4)
    assert again == [2, 1, 1] * 4
    assert contents(result) == sorted(lesson.replace("Orders", "ORDERS") for lesson in LESSONS)


async def test_a_reflection_that_did_not_get_through_is_not_carried() -> None:
    def refusing(prompt: Prompt) -> Mapping[str, Any]:
        if len(items(prompt)) > 1:
            raise PromptTooLongError("too long")
        if LESSONS[0] in prompt.user or is_control(prompt):
            raise PoisonError("no usable reply")
        return echo(prompt)

    result = await learned(refusing, reflections(*LESSONS[:2]), groups=1)
    assert contents(result) == [LESSONS[1]]
    assert {seen.reflection_id: seen.ok for seen in result.seen} == {"r-0": False, "r-1": True}


async def test_reflections_without_text_support_nothing_and_are_not_asked_about() -> None:
    def inventing(prompt: Prompt) -> Mapping[str, Any]:
        sources = [item["n"] for item in items(prompt)]
        return {"operations": [{"type": "ADD", "section": "", "content": "Pay at once.", "sources": sources}]}

    model = ScriptedModel(inventing)
    result = await learned(model, reflections(" ", "\n"))
    assert contents(result) == []
    assert {prompt.reply_name for prompt in model.prompts} == {"operations"}


async def test_calls_after_a_node_s_first_are_of_begun_work_which_a_drain_lets_finish() -> None:
    model = ScriptedModel(reworded)
    await learned(model, reflections(*LESSONS), groups=1)
    assert [(prompt.reply_name, prompt.begun) for prompt in model.prompts] == [
        ("operations", False),
        ("check", True),
    ]


# ---- dropped


async def test_only_vague_lessons_may_be_dropped_by_name() -> None:
    def dropping(prompt: Prompt) -> Mapping[str, Any]:
        whole = dict(echo(prompt))
        if is_combine(prompt):
            return whole
        vague = [n for one in whole["operations"] for n in one["sources"]]
        return {"operations": [], "dropped": vague, "known": []}

    given = reflections("Be careful.", *LESSONS[:4])
    result = await learned(dropping, given)
    assert contents(result) == sorted(LESSONS[:4])
    assert [(seen.reflection_id, seen.text) for seen in result.seen if seen.dropped] == [
        ("r-0", "Be careful.")
    ]


async def test_at_most_a_third_of_a_batch_is_dropped() -> None:
    vague = [f"Be {word}." for word in ("careful", "polite", "quick", "thorough", "exact", "brief")]

    def dropping(prompt: Prompt) -> Mapping[str, Any]:
        return {"operations": [], "dropped": [item["n"] for item in items(prompt)], "known": []}

    result = await learned(dropping, reflections(*vague))
    assert sum(seen.dropped for seen in result.seen) == 2
    assert len(contents(result)) == 4


# ---- entries


def with_entry(content: str) -> Playbook:
    entry = Entry(id="misc-00001", section="OTHERS", content=content, created_version=1)
    return empty("p").model_copy(update={"version": 1, "next_id": 2, "entries": (entry,)})


async def test_what_an_entry_says_is_known_and_not_added_again() -> None:
    result = await learned(echo, reflections(*LESSONS[:4]), with_entry(LESSONS[0]))
    assert [(one.entry_id, one.evidence) for one in result.known] == [("misc-00001", ("r-0",))]
    assert [one.content for one in result.operations if one.content == LESSONS[0]] == []
    assert contents(result) == sorted(LESSONS[1:4])


async def test_an_agent_s_own_advice_is_no_news() -> None:
    shown = Shown(version=1, entry_ids=("misc-00001",))
    given = [*reflections(LESSONS[0], shown=shown), *reflections(*LESSONS[:4])[1:]]
    result = await learned(echo, given, with_entry(LESSONS[0]))
    assert [(one.entry_id, one.evidence) for one in result.echoes] == [("misc-00001", ("r-0",))]
    assert result.known == ()


async def test_a_claim_that_an_entry_with_another_figure_says_it_is_refused() -> None:
    base = with_entry("Opened parcels are refunded within 14 days.")
    given = reflections("Opened parcels are refunded within 30 days.", *LESSONS[:3])

    def claiming(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            quote = "Opened parcels are refunded"
            return {"covered": [{"lesson": 1, "statement": 1, "quote": quote}], "lost": []}
        known = [{"n": item["n"], "entry_id": "misc-00001"} for item in items(prompt)]
        return {"operations": [], "dropped": [], "known": known}

    model = ScriptedModel(claiming)
    model.answers_checks = False
    result = await learned(model, given, base)
    assert given[0].key_insight in contents(result)
    assert result.known == ()


async def test_an_operation_that_nothing_supports_has_no_evidence() -> None:
    def inventing(prompt: Prompt) -> Mapping[str, Any]:
        whole = dict(echo(prompt))
        made_up = {"type": "ADD", "section": "", "content": "Always give a rebate.", "sources": [1]}
        return {**whole, "operations": [*whole["operations"], made_up]}

    result = await learned(inventing, reflections(*LESSONS[:4]))
    assert contents(result) == sorted(LESSONS[:4])
    assert [one.content for one in result.operations if not one.evidence] == ["Always give a rebate."]


def updating(content: str) -> Answer:
    """Propose an UPDATE in the group of the item, and lose it in the combine."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        whole = dict(echo(prompt))
        if is_combine(prompt):
            kept = [
                {**one, "type": "ADD", "entry_ids": []} if one["type"] == "UPDATE" else one
                for one in whole["operations"]
            ]
            return {**whole, "operations": kept}
        said = [
            {**one, "type": "UPDATE", "entry_ids": ["misc-00001"]} if one["content"] == content else one
            for one in whole["operations"]
        ]
        return {**whole, "operations": said}

    return answer


async def test_a_correction_is_covered_by_an_operation_on_the_same_entry_only() -> None:
    new = "Opened parcels are refunded within 30 days, and no longer within 14 days."
    base = with_entry("Opened parcels are refunded within 14 days.")
    result = await learned(losing(updating(new)), reflections(new, *LESSONS[:7]), base)
    applied: list[Operation] = [one for one in result.operations if one.content == new and one.evidence]
    assert [(one.kind.value, one.entry_ids) for one in applied] == [("UPDATE", ("misc-00001",))]


async def test_a_new_figure_alone_corrects_no_entry_and_both_stay_as_a_conflict() -> None:
    new = "Opened parcels are refunded within 30 days."
    base = with_entry("Opened parcels are refunded within 14 days.")
    result = await learned(updating(new), reflections(new, *LESSONS[:7]), base)
    applied: list[Operation] = [one for one in result.operations if one.content == new and one.evidence]
    assert [(one.kind.value, one.entry_ids) for one in applied] == [("ADD", ())]
    assert [(one.entry_id, one.content, one.evidence) for one in result.conflicts] == [
        ("misc-00001", new, ("r-0",))
    ]


def losing(answer: Answer, *lost: str) -> ScriptedModel:
    """Answer check calls about a rewrite: these words are lost."""

    def answered(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name != "check":
            return answer(prompt)
        return {**checked(prompt), "lost": [{"rewrite": 1, "quote": quote} for quote in lost]}

    model = ScriptedModel(answered)
    model.answers_checks = False
    return model


CONDITION = "Opened parcels are refunded, unless they are food."
SHORTER = "Parcels that were opened are refunded at once."


async def test_a_rewrite_that_loses_a_condition_is_a_conflict_and_one_that_keeps_it_is_applied() -> None:
    given, base = reflections(SHORTER, *LESSONS[:7]), with_entry(CONDITION)
    kept = await learned(losing(updating(SHORTER)), given, base)
    assert (kept.conflicts, [one.kind.value for one in kept.operations if one.entry_ids]) == ((), ["UPDATE"])
    lost = await learned(losing(updating(SHORTER), "unless they are food"), given, base)
    assert [one.why for one in lost.conflicts] == ['UPDATE would lose "unless they are food"']
    assert SHORTER in contents(lost)


async def test_a_rewrite_that_no_check_call_could_judge_is_a_conflict() -> None:
    def failing(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            raise PoisonError("no usable reply")
        return updating(SHORTER)(prompt)

    model = ScriptedModel(failing)
    model.answers_checks = False
    result = await learned(model, reflections(SHORTER, *LESSONS[:7]), with_entry(CONDITION))
    assert len(result.conflicts) == 1


async def test_a_removal_rests_on_the_reflections_against_the_entry() -> None:
    harmful = BulletTag(id="misc-00001", tag="harmful")
    given = reflections(*LESSONS[:4])
    given[0] = given[0].model_copy(update={"bullet_tags": (harmful,)})

    def removing(prompt: Prompt) -> Mapping[str, Any]:
        whole = dict(echo(prompt))
        removal = {"type": "REMOVE", "entry_ids": ["misc-00001"]}
        sources = [item["n"] for item in items(prompt)]
        return {**whole, "operations": [*whole["operations"], {**removal, "sources": sources}]}

    result = await learned(removing, given, with_entry("Pay in cash."))
    (removal,) = (one for one in result.operations if one.kind == "REMOVE" and one.evidence)
    assert removal.evidence == ("r-0",)


@pytest.mark.parametrize(
    ("text", "vague"),
    [
        ("退款前请先核对订单号码和付款方式", False),
        ("返金の前に注文番号と支払い方法を確認してください", False),
        ("ก่อนคืนเงินให้ตรวจสอบหมายเลขคำสั่งซื้อ", False),
        ("请注意细节", True),
        ("Be very careful.", True),
        ("Never refund gift cards", False),
        ("Refund only with receipts", False),
    ],
)
def test_a_lesson_in_a_script_without_spaces_is_vague_by_its_letters(text: str, *, vague: bool) -> None:
    assert is_vague(text) is vague


async def test_a_node_that_asks_nothing_keeps_what_a_combine_below_it_lost() -> None:
    kept, lost = (Operation(kind=OperationKind.ADD, section="OTHERS", content=one) for one in LESSONS[:2])
    below = NodeResult(status="ok", operations=(kept,), aside=(lost,))
    only: dict[str, Any] = {"result": below}
    child = Partial.model_construct(**only)
    for carry, aside in ((True, (lost,)), (False, ())):
        result = await Aggregator(ModelClient(ScriptedModel()), settings=PlanSettings(carry=carry)).combine(
            OTHER, 2, [child]
        )
        assert (result.status, result.operations, result.aside) == ("passed", (kept,), aside)


# ---- time


@pytest.mark.parametrize("step", ["witnessed", "without_outvoted", "outcome"])
async def test_a_worker_answers_its_broker_while_a_root_is_checked(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of long lessons takes longer than a consumer may be silent, and its next reader takes as long."""
    loop, answered = get_running_loop(), list[bool]()
    work = getattr(Coverage, step)

    def waiting(coverage: Coverage, *given: Any) -> Any:
        heartbeat = Event()
        loop.call_soon_threadsafe(heartbeat.set)
        answered.append(heartbeat.wait(2))
        return work(coverage, *given)

    monkeypatch.setattr(Coverage, step, waiting)
    await learned(echo, reflections(*LESSONS[:2]))
    assert answered
    assert all(answered)
