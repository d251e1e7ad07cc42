"""A playbook without some reflections: of others, too, a text stays only where they said all of it."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from combee.core.log.erasure.lessons import Lessons
from combee.core.log.erasure.rewriting import Rewriter
from combee.core.log.erasure.runs import Runs
from combee.core.log.erasure.selector import Marker, Selector
from combee.core.playbook import executing, trust, versions
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.lineage.recomputing import Recomputation, Recomputed
from combee.core.playbook.versions import empty
from combee_schemas import topics
from combee_schemas.base import Message, Source
from combee_schemas.plan import PlanSettings, Probation
from combee_schemas.playbook import Asked, Playbook, Rejected, Revocation
from combee_schemas.records import Record
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Conflict, Known, Operation, OperationKind, Seen, Update
from combee_schemas.topics import AnyTopic
from support.playbooks import (
    ADD,
    MERGE,
    PLENTY,
    REFLECTIONS,
    REMOVE,
    UPDATE,
    command,
    entry,
    op,
    operation_lists,
    update_of,
)
from support.teaching import rejected

RULE = "Opened parcels cost a restocking fee of 15 %"
OTHER_RULE = "Opened parcels cost a restocking fee of 20 %"
ENTRY = "str-00001"
HONEST = ("r-2", "r-3")
LAST = "Be brief, pay twice, sign"


def update(
    current: Playbook, *operations: Operation, seen: Iterable[int], known: Sequence[Known] = ()
) -> Update:
    """Return what a batch of these reflections made; the first reflection ever is the attacker's."""
    reflections = [
        Seen(reflection_id=f"r-{n}", offset=n, source=Source(name="lab" if n == 1 else f"shop-{n}"))
        for n in seen
    ]
    made = update_of(current, operations, reflections, known=known)
    return made.model_copy(update={"manifest_offset": current.version + 10})


def added(content: str, *evidence: str) -> Operation:
    return op(ADD, content, evidence=evidence).model_copy(update={"section": "STRATEGIES & INSIGHTS"})


def without(
    revoked: Sequence[str], *made: Update, retained_from: int = 0, asked: Iterable[Asked] = ()
) -> Recomputed:
    """Return what is left of the versions that these updates make, without what is revoked."""
    history = [empty("p")]
    for one in made:
        history.append(versions.after_update(history[-1], one, budget_tokens=PLENTY, now_ms=0))
    barred = history[-1].model_copy(update={"revoked": tuple(revoked)})
    book = Recomputation(history[0], barred, retained_from=retained_from, asked=frozenset(asked), next_id=9)
    for version, one in zip(history[1:], made, strict=True):
        book.follow(version, one)
    return book.result(budget_tokens=PLENTY)


def whole_texts(*taught: tuple[Sequence[int], str]) -> list[Update]:
    """Return the batches in which reflections teach one text after another, of one component."""
    made, book = list[Update](), empty("p")
    for seen, content in taught:
        evidence = tuple(f"r-{n}" for n in seen)
        operation = op(UPDATE if made else ADD, content, *["calc-00001"] * bool(made), evidence=evidence)
        one = update(book, operation, seen=seen)
        plan = one.plan.model_copy(update={"settings": PlanSettings(holds="components", method="gepa")})
        made.append(one.model_copy(update={"plan": plan}))
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    assert [entry.id for entry in book.entries] == ["calc-00001"]
    return made


def said_again() -> tuple[Update, Update]:
    """Return a batch in which one source teaches a rule, and one in which others say it, too."""
    base = empty("p")
    first = update(base, added(RULE, "r-1"), seen=[1])
    second = versions.after_update(base, first, budget_tokens=PLENTY, now_ms=0)
    claim = Known(entry_id=ENTRY, evidence=HONEST)
    return first, update(second, seen=[2, 3], known=[claim])


def reworded(content: str, said: str, covered: str) -> tuple[Update, Update, Update]:
    """Return a lesson, its rewording to ``content``, and a batch of which a reflection says what it then ``said``."""
    made, book = list[Update](), empty("p")
    rewrite = op(UPDATE, content, ENTRY, evidence=("r-2",))
    claim = Known(entry_id=ENTRY, evidence=("r-3",), said=trust.said_digest(said))
    for number, operations in enumerate(([added(RULE, "r-1")], [rewrite], []), 1):
        one = update(book, *operations, seen=[number], known=[] if operations else [claim])
        seen = tuple(reflection.model_copy(update={"covered": covered}) for reflection in one.result.seen)
        made.append(one.model_copy(update={"result": one.result.model_copy(update={"seen": seen})}))
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    return made[0], made[1], made[2]


def test_what_another_says_of_reworded_words_stays_next_to_the_former_words() -> None:
    """The entry said its former words again, and who had repeated the new ones was lost without a word."""
    left = without(["r-2"], *reworded(OTHER_RULE, OTHER_RULE, "words"))
    says = [(entry.content, entry.evidence) for entry in left.entries]
    assert (says, left.mixed) == ([(RULE, ("r-1",)), (OTHER_RULE, ("r-3",))], ())
    assert len({entry.id for entry in left.entries}) == 2


@pytest.mark.parametrize(("retained_from", "fate"), [(0, "again"), (100, "dropped")])
def test_who_says_reworded_words_by_a_models_word_alone_is_asked_again(retained_from: int, fate: str) -> None:
    made = reworded(OTHER_RULE, OTHER_RULE, "check")
    left = without(["r-2"], *made, retained_from=retained_from)
    (mixed,) = left.mixed
    assert mixed.fate == fate
    left = without(["r-2"], *made, retained_from=retained_from, asked=mixed.again)
    assert [entry.content for entry in left.entries] == [RULE]
    assert [asked.offset for asked in left.again] == ([3] if fate == "again" else [])


def test_who_said_what_an_entry_said_earlier_does_not_bring_back_what_it_said_later() -> None:
    """With overlapping batches a reflection is about words that a rewrite has replaced meanwhile."""
    assert without(["r-1", "r-2"], *reworded("Pay all refunds twice", RULE, "words")).entries == ()


def test_a_correction_that_went_into_a_revoked_entry_is_shown_without_it() -> None:
    """It waited for ever, unless somebody said it once more."""
    made, book = list[Update](), empty("p")
    corrected = op(UPDATE, RULE, "str-00002", evidence=("r-3", "r-4"))
    for seen, operations in (
        ([1, 2], [added(RULE, "r-1"), added(OTHER_RULE, "r-2")]),
        ([3, 4], [corrected]),
    ):
        one = update(book, *operations, seen=seen)
        team = one.plan.settings.model_copy(update={"trust": "team"})
        worded = tuple(reflection.model_copy(update={"covered": "words"}) for reflection in one.result.seen)
        result = one.result.model_copy(update={"seen": worded})
        plan = one.plan.model_copy(update={"settings": team})
        made.append(one.model_copy(update={"plan": plan, "result": result}))
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    assert [entry.content for entry in book.entries] == [RULE]
    (left,) = without(["r-1", "r-2"], *made).entries
    assert (left.content, left.evidence, left.is_active) == (RULE, ("r-3", "r-4"), True)
    again = Known(entry_id=ENTRY, evidence=("r-5",), said=trust.said_digest(RULE))
    (left,) = without(["r-1", "r-2"], *made, update(book, seen=[5], known=[again])).entries
    assert left.evidence == ("r-3", "r-4", "r-5"), "not in two entries, each with a part of the support"


def test_what_a_person_removed_in_revoked_words_comes_back_in_the_words_before() -> None:
    """The removal was of the words that are revoked; the lesson of others went with them for good."""
    first, second, _ = reworded(OTHER_RULE, OTHER_RULE, "words")
    taught = versions.after_update(empty("p"), first, budget_tokens=PLENTY, now_ms=0)
    bad = versions.after_update(taught, second, budget_tokens=PLENTY, now_ms=0)
    removal = command("edit", operations=(op(REMOVE, "", ENTRY),))
    edited = executing.after_command(bad, removal, 1, target=None, budget_tokens=PLENTY, now_ms=0)
    assert edited.entries == ()
    for revoked, says in ((["r-2"], [RULE]), (["r-1", "r-2"], []), (["r-9"], [])):
        book = Recomputation(empty("p"), edited.model_copy(update={"revoked": tuple(revoked)}), next_id=9)
        for version, one in ((taught, first), (bad, second), (edited, None)):
            book.follow(version, one)
        assert [entry.content for entry in book.result(budget_tokens=PLENTY).entries] == says


def test_what_a_person_removed_does_not_come_back_next_to_the_words_before() -> None:
    """Others had said the revoked words, too: without these they stand in an entry of their own."""
    made = reworded(OTHER_RULE, OTHER_RULE, "words")
    history = [empty("p")]
    for one in made:
        history.append(versions.after_update(history[-1], one, budget_tokens=PLENTY, now_ms=0))
    removal = command("edit", operations=(op(REMOVE, "", ENTRY),))
    edited = executing.after_command(history[-1], removal, 1, target=None, budget_tokens=PLENTY, now_ms=0)
    assert edited.entries == ()
    book = Recomputation(empty("p"), edited.model_copy(update={"revoked": ("r-2",)}), next_id=9)
    for version, one in zip(history[1:], made, strict=True):
        book.follow(version, one)
    book.follow(edited, None)
    assert [entry.content for entry in book.result(budget_tokens=PLENTY).entries] == [RULE]


def test_a_revoked_correction_does_not_bring_back_what_a_person_rejected() -> None:
    first, second, _ = reworded(OTHER_RULE, OTHER_RULE, "words")
    taught = versions.after_update(empty("p"), first, budget_tokens=PLENTY, now_ms=0)
    book = versions.after_update(taught, second, budget_tokens=PLENTY, now_ms=0)
    rejected = Rejected(entry_id="misc-00007", said=trust.wording_digest(RULE))
    book = book.model_copy(update={"rejected": (rejected,)})
    revoke = command("revoke", reflection_ids=("r-2",))
    left = without(["r-2"], first, second)
    assert [entry.content for entry in left.entries] == [RULE]
    made = executing.after_command(
        book, revoke, 1, target=None, budget_tokens=PLENTY, now_ms=0, recomputed=left
    )
    assert made.entries == ()


def test_what_contradicts_an_entry_waits_again_without_the_source_that_let_agents_see_it() -> None:
    """Behind the entry next to which it is shown stood one source, and it needs two: it stayed with one."""
    made, book = list[Update](), empty("p")
    for ids, content in ((("r-2",), RULE), (("r-1", "r-3"), OTHER_RULE)):
        seen = tuple(
            Seen(reflection_id=one, offset=int(one[2:]), source=Source(name=one, proven="secret"))
            for one in ids
        )
        one = update_of(book, [added(content, *ids)], seen, trust="team")
        conflict = Conflict(entry_id=ENTRY, content=content, evidence=ids)
        made.append(
            one.model_copy(update={"result": one.result.model_copy(update={"conflicts": (conflict,)})})
        )
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    for revoked, shown in ((["r-9"], [True, True]), (["r-1"], [True, False])):
        assert [entry.is_active for entry in without(revoked, *made).entries] == shown


def test_what_comes_under_the_id_of_something_that_waits_has_the_support_of_its_own_words() -> None:
    """It had the support of the revoked words, none: four more sources had to say what four had said."""
    made, book = list[Update](), empty("p")
    by_four = ("r-3", "r-4", "r-5", "r-6")
    for ids, operations in (
        (("r-1", "r-2"), [added(OTHER_RULE, "r-1"), added("Opened parcels cost a fee", "r-2")]),
        (by_four, [op(UPDATE, RULE, ENTRY, evidence=by_four), op(UPDATE, RULE, "str-00002")]),
    ):
        seen = tuple(
            Seen(
                reflection_id=one,
                offset=int(one[2:]),
                covered="words",
                source=Source(name=one, proven="secret"),
            )
            for one in ids
        )
        made.append(update_of(book, operations, seen, trust="public", colluders=3))
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    assert [entry.is_active for entry in book.entries] == [True, False]
    (left,) = without(["r-1", "r-2"], *made).entries
    assert (left.content, left.evidence, left.is_active) == (RULE, by_four, True)


def test_where_they_have_expired_it_goes_all_the_same_and_it_is_said() -> None:
    left = without(["r-1"], *said_again(), retained_from=100)
    assert (left.entries, [mixed.fate for mixed in left.mixed]) == ((), ["dropped"])


@pytest.mark.parametrize("kind", [UPDATE, REMOVE])
def test_a_consolidation_of_revoked_words_neither_keeps_them_nor_takes_the_words_before_them(
    kind: OperationKind,
) -> None:
    """In a lab, where a consolidation may do as it likes."""
    base = empty("p")
    made = [update(base, added(RULE, "r-2"), seen=[2])]
    for sequence in (2, 3):
        base = versions.after_update(base, made[-1], budget_tokens=PLENTY, now_ms=0)
        rewrite = op(UPDATE, "Opened parcels cost nothing at all", ENTRY, evidence=("r-1",))
        tidied = op(kind, "" if kind == REMOVE else "Opened parcels cost nothing", ENTRY)
        made.append(update(base, *[rewrite if sequence == 2 else tidied], seen=[1] if sequence == 2 else []))
    assert [entry.content for entry in without(["r-1"], *made).entries] == [RULE]
    alone = update(empty("p"), added(OTHER_RULE, "r-1"), seen=[1])
    base = versions.after_update(empty("p"), alone, budget_tokens=PLENTY, now_ms=0)
    assert without(["r-1"], alone, update(base, op(kind, RULE, ENTRY), seen=[])).entries == ()


@pytest.mark.parametrize(
    ("retained_from", "text", "fates"),
    [(0, "Be brief", ["again", "again"]), (100, LAST, ["dropped", "stays"])],
)
def test_a_whole_text_that_rests_on_a_revoked_one_is_asked_about_again_unless_it_has_expired(
    retained_from: int, text: str, fates: list[str]
) -> None:
    made = whole_texts(([2], "Be brief"), ([1, 3], "Be brief, pay twice"), ([4], LAST))
    left = without(["r-1"], *made, retained_from=retained_from)
    assert ([entry.content for entry in left.entries], [one.fate for one in left.mixed]) == ([text], fates)


@pytest.mark.parametrize("is_own", [True, False], ids=["next to the revoked", "later"])
def test_of_a_whole_text_those_who_are_left_are_asked_about_again(*, is_own: bool) -> None:
    """Another one has expired, or was forgotten."""
    made = whole_texts(([1, 2, 5], "Be brief")) if is_own else whole_texts(([1], "Be brief"), ([2, 5], LAST))
    left = without(["r-1"], *made, retained_from=3)
    (mixed,) = (one for one in left.mixed if one.again)
    assert (left.entries, [asked.offset for asked in mixed.again]) == ((), [5])


def test_words_that_a_rejection_gives_back_go_with_who_taught_them() -> None:
    made, history = whole_texts(([1, 2], "Be brief, pay twice"), ([3], LAST)), [empty("p")]
    for one in made:
        history.append(versions.after_update(history[-1], one, budget_tokens=PLENTY, now_ms=0))
    after = rejected(history[2], "calc-00001", history[1])
    assert [entry.content for entry in after.entries] == ["Be brief, pay twice"]
    book = Recomputation(history[0], after.model_copy(update={"revoked": ("r-1",)}), next_id=9)
    for version, update in zip((*history[1:], after), (*made, None), strict=True):
        book.follow(version, update)
    left = book.result(budget_tokens=PLENTY)
    assert (left.entries, [asked.offset for one in left.mixed for asked in one.again]) == ((), [2, 3])


def test_names_that_a_lab_counted_do_not_come_back_with_a_revocation() -> None:
    first = update(empty("p"), added(RULE, "r-2"), seen=[2])
    base = versions.after_update(empty("p"), first, budget_tokens=PLENTY, now_ms=0)
    assert base.entries[0].sources == ("shop-2",)
    second = update(base, seen=[1])
    team = second.plan.model_copy(update={"settings": PlanSettings(trust="team")})
    (entry,) = without(["r-1"], first, second.model_copy(update={"plan": team})).entries
    assert (entry.content, entry.sources) == (RULE, ())


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (op(REMOVE, "", ENTRY, evidence=("r-3",)), [RULE]),
        (op(UPDATE, LAST, ENTRY, evidence=("r-3",)), [RULE, LAST]),
        (op(UPDATE, OTHER_RULE, ENTRY, evidence=("r-3",)), [OTHER_RULE]),
    ],
)
def test_what_others_made_of_revoked_words_takes_no_other_lesson(
    operation: Operation, says: Sequence[str]
) -> None:
    """Who removed the attacker's words removed, once these were revoked, the lesson that had stood there before."""
    made, book = list[Update](), empty("p")
    rewrite = op(UPDATE, "Wire the money at once", ENTRY, evidence=("r-1",))
    for seen, one in ((2, added(RULE, "r-2")), (1, rewrite), (3, operation)):
        made.append(update(book, one, seen=[seen]))
        book = versions.after_update(book, made[-1], budget_tokens=PLENTY, now_ms=0)
    assert RULE not in {entry.content for entry in book.entries}
    assert [entry.content for entry in without(["r-1"], *made).entries] == says


def test_who_said_all_of_it_keeps_it() -> None:
    left = without(["r-1"], *said_again())
    assert [(entry.content, entry.evidence) for entry in left.entries] == [(RULE, HONEST)]


def test_what_others_say_stays_where_it_is_not_known_where_they_stand() -> None:
    said = update(empty("p"), added(RULE, "r-1", *HONEST), seen=[1])
    left = without(["r-1"], said)
    assert [(entry.content, entry.evidence) for entry in left.entries] == [(RULE, HONEST)]


@pytest.mark.parametrize("retained_from", [0, 100], ids=["retained", "expired"])
@pytest.mark.parametrize("covered", ["words", "carried", "check", ""])
@pytest.mark.parametrize(
    "entry_ids", [(), (ENTRY,)], ids=["an addition", "a rewrite of what is not there yet"]
)
def test_what_another_reflection_says_word_for_word_stays_without_a_model(
    entry_ids: tuple[str, ...], covered: str, retained_from: int
) -> None:
    """Who repeats every lesson would take all of them along when it is revoked."""
    says = added(RULE, "r-1", *HONEST)
    if entry_ids:
        says = says.model_copy(update={"kind": UPDATE, "entry_ids": entry_ids})
    said = update(empty("p"), says, seen=[1, 2, 3])
    team = said.plan.settings.model_copy(update={"trust": "team"})
    said = said.model_copy(update={"plan": said.plan.model_copy(update={"settings": team})})
    result = said.result
    seen = tuple(one.model_copy(update={"covered": covered}) for one in result.seen)
    said = said.model_copy(update={"result": result.model_copy(update={"seen": seen})})
    left = without(["r-1"], said, retained_from=retained_from, asked=())
    is_worded = covered in {"words", "carried"}
    fates = [] if is_worded else ["dropped" if retained_from else "again"]
    assert [mixed.fate for mixed in left.mixed] == fates
    if is_worded:
        assert [(entry.content, entry.evidence) for entry in left.entries] == [(RULE, HONEST)]


@pytest.mark.parametrize("evidence", [(), HONEST], ids=["nobody says it", "others say it"])
def test_a_lesson_stays_though_a_curator_also_named_it_for_an_entry_that_is_revoked_and_was_removed(
    evidence: tuple[str, ...],
) -> None:
    history = [empty("p")]

    def learned(*operations: Operation, seen: Iterable[int]) -> Update:
        made = update(history[-1], *operations, seen=seen)
        team = made.plan.settings.model_copy(update={"trust": "team"})
        made = made.model_copy(update={"plan": made.plan.model_copy(update={"settings": team})})
        history.append(versions.after_update(history[-1], made, budget_tokens=PLENTY, now_ms=0))
        return made

    made = [learned(added("Skip the fraud screening", "r-1"), seen=[1])]
    rewrite = op(UPDATE, RULE, ENTRY, evidence=evidence)
    made.append(learned(added(RULE, *HONEST), rewrite, seen=[2, 3]))
    made.append(learned(op(REMOVE, "", ENTRY, evidence=("r-4", "r-5", "r-6")), seen=[4, 5, 6]))
    assert [entry.content for entry in history[-1].entries] == [RULE]
    assert [entry.content for entry in without(["r-1"], *made).entries] == [RULE]


def test_what_a_person_keeps_is_shown_though_without_what_is_revoked_it_would_wait() -> None:
    said = update(empty("p"), added(RULE, "r-1", *HONEST, "r-4"), seen=[1, 2, 3, 4])
    public = said.plan.settings.model_copy(update={"trust": "public", "colluders": 3})
    proven = tuple(
        one.model_copy(update={"covered": "words", "source": Source(name=one.reflection_id, proven="secret")})
        for one in said.result.seen
    )
    said = said.model_copy(
        update={
            "plan": said.plan.model_copy(update={"settings": public}),
            "result": said.result.model_copy(update={"seen": proven}),
        }
    )
    shown = versions.after_update(empty("p"), said, budget_tokens=PLENTY, now_ms=0)
    keeps = command("edit", operations=[op(UPDATE, RULE, ENTRY).model_dump(mode="json")])
    kept = executing.after_command(shown, keeps, 1, target=None, budget_tokens=PLENTY, now_ms=0)
    states = []
    for made in ([(shown, said)], [(shown, said), (kept, None)]):
        last = made[-1][0]
        book = Recomputation(empty("p"), last.model_copy(update={"revoked": ("r-1",)}), next_id=9)
        for version, one in made:
            book.follow(version, one)
        states.append([entry.state for entry in book.result(budget_tokens=PLENTY).entries])
    assert states == [["proposed"], ["active"]]


@pytest.mark.parametrize("covered", ["words", "check"])
def test_what_others_claim_word_for_word_stays_though_they_have_expired(covered: str) -> None:
    first, again = said_again()
    seen = tuple(one.model_copy(update={"covered": covered}) for one in again.result.seen)
    again = again.model_copy(update={"result": again.result.model_copy(update={"seen": seen})})
    left = without(["r-1"], first, again, retained_from=100)
    assert [entry.evidence for entry in left.entries] == ([HONEST] if covered == "words" else [])


@pytest.mark.parametrize(
    ("revoked", "state", "left"),
    [(["r-1", "r-2"], "proposed", ("shop-3",)), (["r-1"], "active", ("shop-2", "shop-3"))],
    ids=["too few are left", "others said it later"],
)
def test_in_public_what_a_revocation_leaves_is_shown_if_a_quorum_of_others_says_it(
    revoked: Sequence[str], state: str, left: tuple[str, ...]
) -> None:
    settings = PlanSettings(trust="public", colluders=1)
    history, updates = [empty("p")], list[Update]()
    for n, known in enumerate([(), (), (Known(entry_id=ENTRY, evidence=("r-3",)),)], 1):
        claims = (Known(entry_id=ENTRY, evidence=("r-2",)),) if n == 2 else known
        made = update(history[-1], *([added(RULE, "r-1")] if n == 1 else []), seen=[n], known=claims)
        (one,) = made.result.seen
        proven = one.model_copy(update={"covered": "words", "source": Source(name=f"shop-{n}", proven="key")})
        plan = made.plan.model_copy(update={"settings": settings})
        result = made.result.model_copy(update={"seen": (proven,)})
        updates.append(made.model_copy(update={"plan": plan, "result": result}))
        history.append(versions.after_update(history[-1], updates[-1], budget_tokens=PLENTY, now_ms=0))
    assert [version.entries[0].is_active for version in history[1:]] == [False, True, True]
    (entry,) = without(revoked, *updates).entries
    assert (entry.state, entry.sources) == (state, left)


def test_what_agents_were_shown_with_support_that_is_revoked_waits_again() -> None:
    said = update(empty("p"), added(RULE, "r-1", "r-2"), seen=[1, 2])
    settings = PlanSettings(trust="public", colluders=1)
    proven = tuple(
        one.model_copy(update={"covered": "words", "source": Source(name=f"shop-{one.offset}", proven="key")})
        for one in said.result.seen
    )
    said = said.model_copy(
        update={
            "plan": said.plan.model_copy(update={"settings": settings}),
            "result": said.result.model_copy(update={"seen": proven}),
        }
    )
    assert versions.after_update(empty("p"), said, budget_tokens=PLENTY, now_ms=0).entries[0].is_active
    (left,) = without(["r-1"], said).entries
    assert (left.state, left.sources, left.support) == ("proposed", ("shop-2",), ("r-2",))


@pytest.mark.parametrize(
    "removal", [(), (op(REMOVE, "", ENTRY, evidence=("r-3", "r-4")),)], ids=["tagged", "removed"]
)
def test_who_found_revoked_words_harmful_has_not_judged_the_words_that_come_back(
    removal: Sequence[Operation],
) -> None:
    """An attacker rewords a lesson; agents that read it find it harmful, before it is revoked and after."""
    history: list[tuple[Playbook, Update | None]] = []
    last = empty("p")

    def learned(*operations: Operation, seen: Iterable[int], read: int = 0) -> None:
        nonlocal last
        made = update(last, *operations, seen=seen)
        team = made.plan.settings.model_copy(update={"trust": "team"})
        tagged = {"tags": (BulletTag(id=ENTRY, tag="harmful"),), "shown_version": read} if read else {}
        found = tuple(one.model_copy(update=tagged) for one in made.result.seen)
        made = made.model_copy(
            update={
                "plan": made.plan.model_copy(update={"settings": team}),
                "result": made.result.model_copy(update={"seen": found}),
            }
        )
        last = versions.after_update(last, made, budget_tokens=PLENTY, now_ms=0)
        history.append((last, made))

    learned(added(RULE, "r-2"), seen=[2])
    learned(op(UPDATE, RULE.replace("15", "95"), ENTRY, evidence=("r-1",)), seen=[1])
    learned(*removal, seen=[3, 4], read=2)
    assert [entry.harmful for entry in last.entries] == ([] if removal else [2])
    revoke = command("revoke", reflection_ids=("r-1",), rules=("id:r-1",))
    left = _recomputed(history, executing.with_revocation(last, revoke), PLENTY)
    last = executing.after_command(
        last, revoke, 12, target=None, recomputed=left, budget_tokens=PLENTY, now_ms=0
    )
    learned(seen=[5], read=3)
    assert [(entry.content, entry.harmful, entry.harmed) for entry in last.entries] == [(RULE, 0, ())]


def test_what_waits_with_the_words_that_a_revocation_brings_back_keeps_its_version() -> None:
    """Nobody was shown it: who has said its rival since it was added still counts."""
    history: list[tuple[Playbook, Update | None]] = []
    last = empty("p")
    operations = [added(RULE, "r-2"), op(UPDATE, "Trust nobody", ENTRY, evidence=("r-1",)), None]
    for n, one in zip((2, 1, 3), operations, strict=True):
        seen = [Seen(reflection_id=f"r-{n}", offset=n)]
        made = update_of(last, [one] if one else [], seen, probation=Probation(reflections=2))
        last = versions.after_update(last, made, budget_tokens=PLENTY, now_ms=0)
        history.append((last, made))
    revoke = command("revoke", reflection_ids=("r-1",))
    left = _recomputed(history, executing.with_revocation(last, revoke), PLENTY)
    last = executing.after_command(
        last, revoke, 12, target=None, recomputed=left, budget_tokens=PLENTY, now_ms=0
    )
    assert [(one.content, one.state, one.created_version) for one in last.entries] == [(RULE, "proposed", 1)]


def barring(version: Playbook, *revoked: str, rule: str) -> Playbook:
    """Return a version with what is revoked now by a rule."""
    made = Revocation(rule=rule, version=version.version + 1)
    return version.model_copy(update={"revoked": revoked, "revocations": (made,)})


@pytest.mark.parametrize("source", ["lab", "unproven"])
def test_the_oldest_known_version_names_no_source_that_is_revoked(source: str) -> None:
    both = entry(ENTRY, RULE, evidence=("r-1", "r-2"), evidence_count=2, sources=(source, "shop-2"))
    kept = entry("str-00002", "Be kind", evidence=("r-1",), evidence_count=1, sources=(source,), by_hand=True)
    oldest = empty("p").model_copy(update={"version": 7, "origin": "batch", "entries": (both, kept)})
    left = Recomputation(oldest, barring(oldest, "r-1", rule=f"source:{source}")).result(budget_tokens=PLENTY)
    assert [(one.evidence, one.sources) for one in left.entries] == [(("r-2",), ("shop-2",)), ((), ())]


def test_a_source_is_barred_by_the_name_under_which_it_counts_or_that_it_claims() -> None:
    base = empty("p")
    claims = update(base, added(RULE, "r-2"), seen=[2])
    proven = PlanSettings(trust="team")
    counted = claims.model_copy(update={"plan": claims.plan.model_copy(update={"settings": proven})})
    barred = barring(base, rule="source:shop-2")
    assert trust.barred(barred, claims) == ("r-2",)
    assert trust.barred(barred, counted) == ("r-2",), "who claims a name is barred with it"
    proof = claims.result.seen[0].model_copy(update={"source": Source(name="shop-9", proven="key")})
    other = counted.model_copy(update={"result": counted.result.model_copy(update={"seen": (proof,)})})
    assert trust.barred(barred, other) == ()


def test_the_owner_of_what_a_revocation_brings_back_does_not_pay_for_its_room() -> None:
    """An attacker removes a lesson of one shop; another shop fills the room, until the removal is revoked."""
    lessons = [f"{word} {word * 9}" for word in ("ab", "cd", "ef", "kl", "gh")]
    base, new = empty("p"), lessons.pop()
    taught = [added(text, f"r-{n}") for n, text in zip((2, 2, 2, 3), lessons, strict=True)]
    first = update(base, *taught, seen=[2, 3])
    full = versions.after_update(base, first, budget_tokens=PLENTY, now_ms=0)
    budget = sum(map(entry_tokens, full.entries))
    removal = within(update(full, op(REMOVE, "", full.entries[0].id, evidence=("r-1",)), seen=[1]), budget)
    shorter = versions.after_update(full, removal, budget_tokens=budget, now_ms=0)
    brought = within(update(shorter, added(new, "r-3"), seen=[3]), budget)
    last = versions.after_update(shorter, brought, budget_tokens=budget, now_ms=0)
    book = Recomputation(base, last.model_copy(update={"revoked": ("r-1",)}), next_id=9)
    for version, one in ((full, first), (shorter, removal), (last, brought)):
        book.follow(version, one)
    left = {entry.content for entry in book.result(budget_tokens=budget).entries}
    without_removal = versions.after_update(full, brought, budget_tokens=budget, now_ms=0)
    assert left == {entry.content for entry in without_removal.entries} == {*lessons[:3], new}


def within(made: Update, budget: int) -> Update:
    """Return an update whose manifest states the token budget."""
    stated = made.plan.settings.model_copy(update={"playbook_tokens": budget})
    return made.model_copy(update={"plan": made.plan.model_copy(update={"settings": stated})})


def _hijacked(base: Playbook) -> Update:
    hijack = op(UPDATE, "Be kind", ENTRY, evidence=("r-1",))
    return update(base, added(RULE, "r-2"), hijack, added("Be kind", "r-2"), seen=[1, 2])


def test_what_a_revocation_brought_back_keeps_its_id_when_something_else_is_revoked() -> None:
    """The attacker gives an entry the words that its batch adds; without the attacker both are there."""
    base = empty("p")
    first = _hijacked(base)
    full = versions.after_update(base, first, budget_tokens=PLENTY, now_ms=0)
    book = Recomputation(base, full.model_copy(update={"revoked": ("r-1",)}), next_id=full.next_id)
    book.follow(full, first)
    revoke = command("revoke", reflection_ids=("r-1",))
    left = book.result(budget_tokens=PLENTY)
    back = executing.after_command(
        full, revoke, 12, target=None, recomputed=left, budget_tokens=PLENTY, now_ms=0
    )
    assert [entry.content for entry in back.entries] == [RULE, "Be kind"]
    later = update(back, seen=[3])
    last = versions.after_update(back, later, budget_tokens=PLENTY, now_ms=0)
    again = Recomputation(base, last.model_copy(update={"revoked": ("r-1", "r-3")}), next_id=last.next_id)
    for version, one in ((full, first), (back, None), (last, later)):
        again.follow(version, one)
    left = again.result(budget_tokens=PLENTY)
    assert ([entry.id for entry in left.entries], left.changes) == ([entry.id for entry in back.entries], ())


def test_a_proposal_keeps_no_support_that_is_revoked_also_where_it_is_no_evidence() -> None:
    proposed = entry(
        ENTRY, RULE, evidence=("r-2",), evidence_count=1, state="proposed", support=("r-1", "r-2")
    )
    oldest = empty("p").model_copy(update={"version": 7, "origin": "batch", "entries": (proposed,)})
    edited = oldest.model_copy(update={"version": 8, "origin": "edit"})
    book = Recomputation(oldest, barring(edited, "r-1", rule="id:r-1"))
    book.follow(edited, None)
    assert [one.support for one in book.result(budget_tokens=PLENTY).entries] == [("r-2",)]


def test_an_operation_that_found_no_entry_finds_none_among_those_that_a_revocation_brings_back() -> None:
    """It names the id that is given to what counts only without the attacker."""
    base = empty("p")
    first = _hijacked(base)
    full = versions.after_update(base, first, budget_tokens=PLENTY, now_ms=0)
    guess = update(full, op(UPDATE, "Trust nobody", "str-00003", evidence=("r-3",)), seen=[3])
    last = versions.after_update(full, guess, budget_tokens=PLENTY, now_ms=0)
    assert [change.detail for change in last.changes] == ["UPDATE: no such entry any more"]
    left = _recomputed([(full, first), (last, guess)], barring(last, "r-1", rule="id:r-1"), PLENTY)
    assert [(entry.id, entry.content) for entry in left.entries] == [
        (ENTRY, RULE),
        ("str-00003", "Be kind"),
    ]


PUBLIC: dict[str, Any] = {"trust": "public", "colluders": 1}
TEAM: dict[str, Any] = {"trust": "team"}


@example(  # with fewer sources an UPDATE of no entry adds what it says; there is no room for that
    [[op(UPDATE, "Please wait 5 s", "calc-00001", evidence=("r-1", "r-2", "r-9"))], []], PUBLIC, 25
)
@example(  # ... and what it adds must not get the id that a second UPDATE names
    [
        [
            op(UPDATE, "one", "calc-00001", evidence=("r-1", "r-9")),
            op(UPDATE, "one", "calc-00001", evidence=("r-1", "r-9", "r-10")),
        ],
        [],
    ],
    PUBLIC,
    PLENTY,
)
@example(  # ... or that its own batch gives later
    [
        [
            op(UPDATE, "Two.", "calc-00001", evidence=("r-1", "r-9")),
            op(ADD, "one", evidence=("r-9",)),
        ],
        [],
    ],
    PUBLIC,
    25,
)
@example(
    [
        [
            op(ADD, "Two.", evidence=("r-9",)),
            op(UPDATE, "one", "calc-00002", evidence=("r-1", "r-2", "r-9")),
        ],
        [],
    ],
    PUBLIC,
    25,
)
@given(
    st.lists(operation_lists, min_size=2, max_size=4),
    st.sampled_from([{}, {"probation": Probation(reflections=2)}, TEAM, PUBLIC]),
    st.sampled_from([PLENTY, 25]),
)
def test_what_was_recorded_after_a_revocation_is_recomputed_the_same(
    batches: list[list[Operation]], settings: dict[str, Any], budget: int
) -> None:
    """The first batch's reflections of ``lab`` are revoked before the others come; theirs never count."""
    current = empty("p")
    history: list[tuple[Playbook, Update | None]] = []
    for n, operations in enumerate(batches):
        reflections = [
            Seen(
                reflection_id=f"{reflection_id}-{n}",
                offset=len(REFLECTIONS) * n + at,
                source=Source(name="lab" if at < 2 else f"shop-{at}", proven="key"),
            )
            for at, reflection_id in enumerate(REFLECTIONS)
        ]
        own = [
            one.model_copy(update={"evidence": tuple(f"{given}-{n}" for given in one.evidence)})
            for one in operations
            if one.evidence and (one.content or one.kind == REMOVE)
        ]
        made = update_of(current, own, reflections, **settings, playbook_tokens=budget)
        current = versions.after_update(current, made, budget_tokens=budget, now_ms=0)
        history.append((current, made))
        if n == 0:
            ids = tuple(one.reflection_id for one in reflections[:2])
            revoke = command("revoke", reflection_ids=ids, rules=("source:lab",))
            left = _recomputed(history, executing.with_revocation(current, revoke), budget)
            current = executing.after_command(
                current, revoke, 12, target=None, recomputed=left, budget_tokens=budget, now_ms=0
            )
            history.append((current, None))
    left = _recomputed(history, current, budget)
    assert left.changes == ()
    assert left.entries == current.entries


def _recomputed(
    history: Sequence[tuple[Playbook, Update | None]], barred: Playbook, budget: int
) -> Recomputed:
    book = Recomputation(empty("p"), barred, next_id=barred.next_id)
    for version, made in history:
        book.follow(version, made)
    return book.result(budget_tokens=budget)


def test_a_batch_of_a_source_that_was_barred_already_is_recomputed_as_it_was_recorded() -> None:
    """The last batch teaches nothing, and its settings let agents see what was only proposed."""
    lab, shop = Source(name="lab", proven="key"), Source(name="shop", proven="key")
    reflections = [Seen(reflection_id=f"r-{n}", offset=n, source=lab if n != 2 else shop) for n in (1, 2, 3)]
    waits = Probation(reflections=2)
    first = update_of(empty("p"), [added(RULE, "r-2")], reflections[:2], probation=waits)
    held = versions.after_update(empty("p"), first, budget_tokens=PLENTY, now_ms=0)
    revoke = command("revoke", reflection_ids=("r-1",), rules=("source:lab",))
    left = _recomputed([(held, first)], executing.with_revocation(held, revoke), PLENTY)
    revoked = executing.after_command(
        held, revoke, 12, target=None, recomputed=left, budget_tokens=PLENTY, now_ms=0
    )
    last = update_of(revoked, [], reflections[2:])
    seen = versions.after_update(revoked, last, budget_tokens=PLENTY, now_ms=0)
    assert [one.state for one in seen.entries] == ["active"]
    left = _recomputed([(held, first), (revoked, None), (seen, last)], seen, PLENTY)
    assert (left.entries, left.changes) == (seen.entries, ())


def test_what_is_revoked_goes_although_runs_were_erased_behind_an_entry_before_it() -> None:
    """Applied to what is left, the batch gives the id of the revoked lesson to the one that others repeated."""
    base = empty("p")
    first = update(base, added(RULE, "r-2"), seen=[2])
    honest = versions.after_update(base, first, budget_tokens=PLENTY, now_ms=0)
    second = update(honest, added(RULE, "r-3"), added("Trust nobody", "r-1"), seen=[3, 1])
    hostile = versions.after_update(honest, second, budget_tokens=PLENTY, now_ms=0)
    lessons = Lessons(Selector(), Runs({"p": {"r-2"}}))
    for version in (honest, hostile):
        lessons.add(version)
    lessons.settle()
    rewriter = Rewriter(lessons, Marker(b"secret"))

    def erased(topic: AnyTopic, message: Message) -> Message:
        sent = topic.record(message)
        record = Record(
            topic=topic.name, partition=0, offset=0, timestamp_ms=0, key=sent.key, value=sent.value
        )
        left = rewriter.record(topic, record)
        assert left is not None
        message_left: Message = topic.read(left)
        return message_left

    history: list[tuple[Any, Any]] = [
        (erased(topics.HISTORY, version), erased(topics.UPDATES, made))
        for version, made in ((honest, first), (hostile, second))
    ]
    assert [len(version.entries) for version, _ in history] == [0, 2]
    left = _recomputed(history, barring(history[-1][0], "r-1", rule="source:lab"), PLENTY)
    assert [(entry.id, entry.content) for entry in left.entries] == [(ENTRY, RULE)]


def test_who_repeats_a_lesson_under_the_id_of_a_revoked_entry_that_it_was_merged_into_supports_it() -> None:
    """Its sources were split among two entries that said the same, and neither had a quorum."""
    lessons = "Ask for the order number first", "Ask for the order number first, and pay twice"
    history, updates = [empty("p")], list[Update]()

    def learn(made: Update, **plan: object) -> None:
        seen = (one.model_copy(update={"covered": "words"}) for one in made.result.seen)
        plan |= {"settings": PlanSettings(trust="public", colluders=1)}
        updates.append(
            made.model_copy(
                update={
                    "plan": made.plan.model_copy(update=plan),
                    "result": made.result.model_copy(update={"seen": tuple(map(_proven, seen))}),
                }
            )
        )
        history.append(versions.after_update(history[-1], updates[-1], budget_tokens=PLENTY, now_ms=0))

    honest, hostile = "str-00001", "str-00002"
    learn(update(history[-1], added(lessons[0], "r-2", "r-3"), added(lessons[1], "r-1"), seen=[1, 2, 3]))
    merge = op(MERGE, lessons[0], hostile, honest)
    learn(update(history[-1], merge, seen=[]), reason="consolidate", reflections=0)
    # An earlier version of Combee kept the id of the entry that a merge named first.
    was = history[-1].entries[0].model_copy(update={"id": hostile})
    history[-1] = history[-1].model_copy(update={"entries": (was,)})
    learn(update(history[-1], seen=[4, 5], known=[Known(entry_id=hostile, evidence=("r-4", "r-5"))]))
    assert [entry.id for entry in history[-1].entries] == [hostile]
    barred = history[-1].model_copy(update={"revoked": ("r-1",)})
    (entry,) = _recomputed([*zip(history[1:], updates, strict=True)], barred, PLENTY).entries
    assert (entry.id, entry.content) == (hostile, lessons[0])
    assert set(entry.sources) == {"shop-2", "shop-3", "shop-4", "shop-5"}


def _proven(seen: Seen) -> Seen:
    return seen.model_copy(update={"source": Source(name=f"shop-{seen.offset}", proven="key")})


def test_what_entries_of_a_revoked_source_evicted_comes_back() -> None:
    """Others taught in the same batch, too."""
    base = empty("p")
    made = [update(base, added(RULE, "r-2"), added(OTHER_RULE, "r-3"), seen=[2, 3])]
    full = versions.after_update(base, made[0], budget_tokens=PLENTY, now_ms=0)
    room = sum(map(entry_tokens, full.entries))
    crowd = [added(f"{word} {word * 9}", "r-1", "r-5") for word in ("ab", "cd")]
    again = Known(entry_id="str-00002", evidence=("r-4",))
    made.append(within(update(full, *crowd, seen=[1, 4, 5], known=[again]), room))
    evicted = versions.after_update(full, made[1], budget_tokens=PLENTY, now_ms=0)
    assert RULE not in [one.content for one in evicted.entries]
    assert [one.content for one in without(["r-1", "r-5"], *made).entries] == [RULE, OTHER_RULE]


def test_who_taught_the_first_whole_text_next_to_a_revoked_source_is_asked_again() -> None:
    """The text went, with all that was learned since, and nobody was asked."""
    made = whole_texts(([1, 2], "Pay twice, be brief"), ([3], "Pay twice, be brief, sign"))
    left = without(["r-1"], *made)
    assert (left.entries, [one.fate for one in left.mixed]) == ((), ["again", "again"])
    asked = [place for one in left.mixed for place in one.again]
    assert without(["r-1"], *made, asked=asked).again == (*asked,)


def test_a_text_that_a_person_wrote_stays_where_a_rejection_gave_it_back() -> None:
    first, *_ = made = whole_texts(([1, 2], "Be brief"))
    book = [empty("p")]
    book.append(versions.after_update(book[-1], first, budget_tokens=PLENTY, now_ms=0))
    theirs = command("edit", operations=(op(UPDATE, "Be polite", "calc-00001"),))
    book.append(executing.after_command(book[-1], theirs, 1, target=None, budget_tokens=PLENTY, now_ms=0))
    later = update(book[-1], op(UPDATE, "Be rude", "calc-00001", evidence=("r-3",)), seen=[3])
    made.append(
        later.model_copy(update={"plan": later.plan.model_copy(update={"settings": first.plan.settings})})
    )
    book.append(versions.after_update(book[-1], made[-1], budget_tokens=PLENTY, now_ms=0))
    book.append(rejected(book[-1], "calc-00001", book[-2]))
    assert [one.content for one in book[-1].entries] == ["Be polite"]
    barred = book[-1].model_copy(update={"revoked": ("r-1", "r-2")})
    left = Recomputation(book[0], barred, next_id=9)
    for version, one in zip(book[1:], (first, None, made[-1], None), strict=True):
        left.follow(version, one)
    assert [one.content for one in left.result(budget_tokens=PLENTY).entries] == ["Be polite"]
