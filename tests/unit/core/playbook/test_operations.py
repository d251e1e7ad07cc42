from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.methods.method import Answer
from combee.core.playbook.operations import (
    MAX_CONTENT_CHARS,
    MAX_OPERATIONS,
    MAX_REPLY_CHARS,
    cut_evidence,
    in_words,
    merge,
    merge_seen,
    read_operations,
    rests,
    union,
)
from combee.core.text.similarity.wording import said
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind, Seen
from support.hostile import REPLIES
from support.rows import each_row

SOURCES = [("r-1",), ("r-2", "r-3"), ("r-4",)]
ALL = ("r-1", "r-2", "r-3", "r-4")


def read(**item: Any) -> Operation | None:
    """Read one operation, an ADD unless it says otherwise."""
    answer = read_operations(
        {"operations": [{"type": "ADD", "section": "OTHERS", "content": "c", "sources": [1], **item}]},
        SOURCES,
    )
    assert len(answer.operations) + answer.unusable == 1
    return answer.operations[0] if answer.operations else None


def usable(**item: Any) -> Operation:
    found = read(**item)
    assert found is not None
    return found


# ---- evidence


@each_row(
    ("sources", "evidence"),
    [
        ([1], ("r-1",)),
        ([2], ("r-2", "r-3")),
        ([3, 1], ("r-4", "r-1")),
        ([1, 1, 1], ("r-1",)),
        ([1, 99], ("r-1",)),
        ([0], ALL),
        ([-1], ALL),
        ([99], ALL),
        ([True], ALL),
        ([1.0], ALL),
        (["1"], ALL),
        ([None], ALL),
        ([[1]], ALL),
        ([2**70], ALL),
        ([], ALL),
        (None, ALL),
        ("1", ALL),
        ({"1": 1}, ALL),
    ],
    ids=str,
)
def test_evidence_is_what_the_named_items_rest_on_or_all_of_it(
    sources: Any, evidence: tuple[str, ...]
) -> None:
    assert usable(sources=sources).evidence == evidence


def test_an_id_that_a_model_writes_is_never_evidence() -> None:
    assert usable(sources=["r-4"], evidence=["r-invented"]).evidence == ALL


# ---- the words of an item

NONE = "no operation"
LONG = "As item 2 of the tariff is no longer charged, leave it out of the total."


@each_row(
    ("content", "expected"),
    [
        ("as item 2", "second"), ("As item #2.", "second"), (" as item 1\n", "first"),
        ("as item 3", NONE), ("as item 0", NONE), ("as item 9", NONE),
        ('"as item 2"', "second"), ("`as item 2`.", "second"), ("'As item 2.'", "second"),
        ("\u201cas item 2\u201d", "second"), ("as items 2", "second"),
        ("as item 2's key_insight", NONE), ("as items 1 and 2", NONE), ("as item 2 says", NONE),
        ("as item 1234567", NONE), ("as item 2\nand 3", NONE),
        (LONG, LONG), ("Do as item 2", "Do as item 2"), ("a rule", "a rule"),
        ("as itemised", "as itemised"),
        ("", ""), (None, None), (7, 7),
    ],
    ids=str,
)  # fmt: skip
def test_an_operation_may_have_the_words_of_one_item(content: Any, expected: Any) -> None:
    body = {"operations": [{"type": "ADD", "content": content}, "odd"], "dropped": [1]}
    found = in_words(body, ["first", "second", ""])
    added = [] if expected == NONE else [{"type": "ADD", "content": expected}]
    assert found == {"operations": [*added, "odd"], "dropped": [1]}


def test_an_operation_to_remove_needs_no_words() -> None:
    removal = {"type": "REMOVE", "content": "as item 1", "entry_ids": ["a"]}
    assert in_words({"operations": [removal]}, [""]) == {"operations": [{**removal, "content": ""}]}


@pytest.mark.parametrize("body", [{}, {"operations": None}, {"text": "```\nnew\n```"}], ids=str)
def test_a_reply_without_operations_stays_as_it_is(body: dict[str, Any]) -> None:
    assert in_words(body, ["first"]) == body


# ---- what a reply says about its items


@pytest.mark.parametrize("dropped", [[3], [3, 3, 99, "1", None, True]], ids=str)
def test_items_are_dropped_by_their_numbers(dropped: list[Any]) -> None:
    assert read_operations({"operations": [], "dropped": dropped}, SOURCES).dropped == {3}


@each_row(
    ("known", "claims"),
    [
        ([{"n": 2, "entry_id": "x"}], {2: "x"}),
        ([{"n": 1, "entry_id": "a"}, {"n": 1, "entry_id": "b"}], {1: "a"}),
        (None, {}), ("all", {}), ([2], {}), ([None], {}), ([{}], {}), ([{"n": 9, "entry_id": "x"}], {}),
        ([{"n": True, "entry_id": "x"}], {}), ([{"n": 1}], {}), ([{"n": 1, "entry_id": 7}], {}),
        ([{"n": 1, "entry_id": " "}], {}), ([{"n": [1], "entry_id": "x"}], {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_names_an_item_and_an_entry_and_the_first_on_an_item_counts(
    known: Any, claims: dict[int, str]
) -> None:
    assert read_operations({"operations": [], "known": known}, SOURCES).known == claims


def test_without_items_there_is_no_evidence() -> None:
    found = read_operations({"operations": [{"type": "ADD", "content": "c"}]}, []).operations
    assert found[0].evidence == ()


# ---- what can be used


@each_row(
    ("kind", "ids", "expected"),
    [
        ("ADD", ["x"], ()),
        ("UPDATE", ["x"], ("x",)),
        ("UPDATE", [], None),
        ("REMOVE", ["x"], ("x",)),
        ("REMOVE", None, None),
        ("MERGE", ["x", "y"], ("x", "y")),
        ("MERGE", ["x"], None),
        ("MERGE", ["x", "x"], None),
        ("MERGE", [1, 2], None),
        ("MERGE", "xy", None),
        ("UPDATE", ["", "x", "x", None, 3], ("x",)),
    ],
)
def test_an_operation_names_the_entries_it_needs(
    kind: str, ids: Any, expected: tuple[str, ...] | None
) -> None:
    found = read(type=kind, entry_ids=ids)
    assert (found.entry_ids if found else None) == expected


@pytest.mark.parametrize("name", ["ADD", "add", "Add"])
def test_case_does_not_matter(name: str) -> None:
    assert usable(type=name).kind is OperationKind.ADD


@each_row("name", ["", "DELETE", None, 1, ["ADD"], {"ADD": 1}, "ADD UPDATE"])
def test_an_unknown_operation_is_unusable(name: Any) -> None:
    assert read(type=name) is None


@each_row("content", ["", " \n\t", None, [], {}, 0])
def test_an_operation_without_content_is_unusable(content: Any) -> None:
    assert read(content=content) is None


def test_a_removal_needs_no_content() -> None:
    assert usable(type="REMOVE", content="", entry_ids=["x"]).content == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("two\nlines\r\n and\tmore  blanks\u2028", "two lines and more blanks"),
        (42, "42"),
        (True, "True"),
        ("\ud800 half", "? half"),
        ("x" * 20_000, "x" * MAX_CONTENT_CHARS),
    ],
)
def test_content_becomes_one_line_that_can_be_written(content: Any, expected: str) -> None:
    assert usable(content=content).content == expected


@each_row(
    ("section", "expected"),
    [
        ("strategies_&_insights", "strategies_&_insights"),
        ("## Formulas", "Formulas"),
        ("", "OTHERS"),
        (None, "OTHERS"),
        (" # ", "OTHERS"),
        ("a\nb", "a b"),
        ("s" * 500, "s" * 80),
    ],
)
def test_sections_are_tidied(section: Any, expected: str) -> None:
    assert usable(section=section).section == expected


@each_row("body", REPLIES.values(), ids=REPLIES.keys())
def test_no_reply_can_make_more_than_a_record_holds(body: dict[str, Any]) -> None:
    answer = read_operations(body, SOURCES)
    found, unusable = answer.operations, answer.unusable
    assert len(found) <= MAX_OPERATIONS
    assert sum(len(one.content) for one in found) <= MAX_REPLY_CHARS
    assert unusable >= 0


def test_one_item_named_again_and_again_makes_no_more_than_a_record_holds() -> None:
    named = [
        {"type": "UPDATE", "entry_ids": [f"e-{n}"], "content": "as item 1"} for n in range(MAX_OPERATIONS)
    ]
    found = read_operations(in_words({"operations": named}, ["x" * MAX_CONTENT_CHARS]), [("r-1",)]).operations
    assert len(found) == MAX_REPLY_CHARS // MAX_CONTENT_CHARS


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(list(OperationKind)) | json,
        "content": json,
        "section": json,
        "entry_ids": json,
        "sources": json,
    },
)


@given(
    st.dictionaries(st.text(max_size=12), json, max_size=3)
    | st.lists(fields).map(lambda x: {"operations": x})
)
def test_any_json_is_read_without_an_error(body: dict[str, Any]) -> None:
    found = read_operations(body, SOURCES).operations
    for one in found:
        assert one.content or one.kind is OperationKind.REMOVE
        assert set(one.evidence) <= set(ALL)


# ---- merging by code


def op(
    content: str, *evidence: str, kind: OperationKind = OperationKind.ADD, ids: tuple[str, ...] = ()
) -> Operation:
    return Operation(kind=kind, content=content, entry_ids=ids, evidence=evidence)


def test_the_same_lesson_said_twice_is_one_operation_with_all_its_evidence() -> None:
    merged = merge([op("Check the seal.", "a"), op("other", "b"), op(" check  the seal", "c", "a")])
    assert [(one.content, one.evidence) for one in merged] == [
        ("Check the seal.", ("a", "c")),
        ("other", ("b",)),
    ]


def test_different_deeds_with_the_same_words_stay_apart() -> None:
    apart = [
        op("c"),
        op("c", kind=OperationKind.UPDATE, ids=("x",)),
        op("c", kind=OperationKind.UPDATE, ids=("y",)),
        op("c", kind=OperationKind.MERGE, ids=("x", "y")),
        op("c", kind=OperationKind.MERGE, ids=("y", "x")),
    ]
    assert list(merge(apart)) == apart


operations = st.lists(
    st.builds(op, st.sampled_from(["a", "A ", "b", "c."]), st.sampled_from("xyz")), max_size=12
)


@given(operations)
def test_merging_keeps_every_lesson_and_all_evidence_and_is_stable(some: list[Operation]) -> None:
    merged = merge(some)
    assert {said(one.content) for one in merged} == {said(one.content) for one in some}
    assert {e for one in merged for e in one.evidence} == {e for one in some for e in one.evidence}
    assert merge(merged) == merged


evidence_lists = st.lists(st.lists(st.sampled_from("abcdefghij"), unique=True), max_size=8)


@given(evidence_lists, st.integers(1, 4))
def test_cutting_evidence_takes_nobody_s_only_mention(some: list[list[str]], kept: int) -> None:
    whole = [op(f"c{n}", *ids) for n, ids in enumerate(some)]
    cut = cut_evidence(whole, kept)
    assert rests(cut) == rests(whole)
    seen_before: set[str] = set()
    for before, after in zip(whole, cut, strict=True):
        assert set(after.evidence) <= set(before.evidence)
        assert len(after.evidence) <= kept + len(set(before.evidence) - seen_before)
        assert after.evidence[:kept] == before.evidence[:kept]
        seen_before |= set(before.evidence)


@given(st.lists(st.lists(st.text(max_size=2), max_size=4), max_size=4))
def test_a_union_has_everything_once_in_order_of_appearance(some: list[list[str]]) -> None:
    flat = [one for inner in some for one in inner]
    assert union(*some) == tuple(dict.fromkeys(flat))


def seen(reflection_id: str, *, ok: bool) -> Seen:
    tags = (BulletTag(id="e", tag="helpful"),) if ok else ()
    return Seen(reflection_id=reflection_id, offset=0, ok=ok, tags=tags)


def test_a_reflection_got_through_if_one_of_its_copies_did_and_its_tags_count_once() -> None:
    merged = merge_seen([[seen("a", ok=False), seen("b", ok=True)], [seen("a", ok=True), seen("b", ok=True)]])
    assert merged == (seen("a", ok=True), seen("b", ok=True))
    assert merge_seen([[seen("a", ok=False)], [seen("a", ok=False)]]) == (seen("a", ok=False),)


def test_a_reflection_is_dropped_if_one_of_its_copies_is() -> None:
    copy = seen("a", ok=True)
    dropped = copy.model_copy(update={"dropped": True})
    assert merge_seen([[copy], [dropped]]) == merge_seen([[dropped], [copy]]) == (dropped,)


@given(st.lists(st.lists(st.builds(seen, st.sampled_from("abc"), ok=st.booleans()), max_size=5), max_size=5))
def test_merging_what_was_seen_does_not_depend_on_how_the_tree_is_cut(parts: list[list[Seen]]) -> None:
    whole = merge_seen(parts)
    halves = merge_seen([merge_seen(parts[:2]), merge_seen(parts[2:])])
    assert {(one.reflection_id, one.ok) for one in whole} == {(one.reflection_id, one.ok) for one in halves}
    assert len(whole) == len({one.reflection_id for one in whole})


@pytest.mark.parametrize(
    "body", [{}, {"operations": None}, {"operations": "ADD"}, {"operations": {}}], ids=str
)
def test_a_reply_without_a_list_proposes_nothing(body: dict[str, Any]) -> None:
    assert read_operations(body, SOURCES) == Answer(operations=())


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("Restart the pump with -v", "Restart the pump with -V"),
        ("Never exceed 10² volts", "Never exceed 102 volts"),
        ("Take 2ⁿ samples", "Take 2n samples"),
        ("Compare it with log₂8", "Compare it with log28"),
        ("Wait 1½ hours", "Wait 11/2 hours"),
    ],
)
def test_an_operation_takes_over_no_evidence_of_one_that_says_another_word_or_number(
    words: str, other: str
) -> None:
    merged = merge([op(words, "a"), op(other, "b")])
    assert [(one.content, one.evidence) for one in merged] == [(words, ("a",)), (other, ("b",))]
