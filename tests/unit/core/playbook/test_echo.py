from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook.results.echo import without_echoes
from combee.core.playbook.versions import empty
from combee_schemas.base import Shown
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook, Retired
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Echo, Operation, OperationKind
from support.rows import each_row

MARGIN, REFUND, GONE = "calc-00001", "calc-00002", "calc-00003"
BASE = empty("p").model_copy(
    update={
        "version": 7,
        "entries": (
            Entry(
                id=MARGIN, section=ACE_SECTIONS[1], content="Round margins to 2 decimals", created_version=3
            ),
            Entry(id=REFUND, section=ACE_SECTIONS[0], content="Refund within 14 days", created_version=1),
        ),
        "retired": (Retired(entry_id=GONE, content="Trust every price"),),
    }
)


def reflection(name: str, *shown: str, version: int = 6) -> Reflection:
    return Reflection(
        reflection_id=name, playbook="p", shown=Shown(version=version, entry_ids=shown) if shown else None
    )


def op(content: str, *evidence: str, kind: OperationKind = OperationKind.ADD, **fields: Any) -> Operation:
    return Operation(kind=kind, section=ACE_SECTIONS[1], content=content, evidence=evidence, **fields)


def kept(
    *operations: Operation, reflections: list[Reflection], base: Playbook = BASE
) -> tuple[list[Operation], list[tuple[str, tuple[str, ...]]]]:
    news, echoes = without_echoes(base, reflections, operations)
    return list(news), [(one.entry_id, one.evidence) for one in echoes]


SHOWN = [reflection("a", MARGIN, REFUND, GONE), reflection("b", MARGIN, GONE)]
UNSHOWN = [reflection("c", REFUND), reflection("d")]


@pytest.mark.parametrize("words", ["Round margins to 2 decimals", "round margins to 2 decimals."])
def test_what_agents_were_shown_and_say_back_is_an_echo(words: str) -> None:
    assert kept(op(words, "a", "b"), reflections=SHOWN) == ([], [(MARGIN, ("a", "b"))])


def test_what_agents_found_without_being_shown_it_is_evidence() -> None:
    found = op("Round margins to 2 decimals", "c", "d")
    assert kept(found, reflections=UNSHOWN) == ([found], [])


def test_of_mixed_evidence_only_the_fresh_remains() -> None:
    mixed = op("Round margins to 2 decimals", "a", "c", "b", "d")
    assert kept(mixed, reflections=[*SHOWN, *UNSHOWN]) == (
        [op("Round margins to 2 decimals", "c", "d")],
        [(MARGIN, ("a", "b"))],
    )


@each_row(
    "news",
    [
        op("Round margins to 3 decimals", "a"),
        op("Never round margins to 2 decimals", "a"),
        op("Round growth to 2 decimals", "a"),
        op("Round margins to 3 decimals", "a", kind=OperationKind.UPDATE, entry_ids=(MARGIN,)),
        op("Refund within 14 days", "a", kind=OperationKind.UPDATE, entry_ids=(MARGIN,)),
        op("", "a", kind=OperationKind.REMOVE, entry_ids=(MARGIN,)),
        op("Refund within 14 days", "a", kind=OperationKind.MERGE, entry_ids=(MARGIN, REFUND)),
    ],
    ids=lambda one: f"{one.kind} {one.content}",
)
def test_a_correction_of_what_was_shown_is_news(news: Operation) -> None:
    assert kept(news, reflections=SHOWN) == ([news], [])


def test_an_update_to_what_its_entry_says_already_is_an_echo() -> None:
    same = op("round margins to 2 decimals.", "a", kind=OperationKind.UPDATE, entry_ids=(MARGIN,))
    assert kept(same, reflections=SHOWN) == ([], [(MARGIN, ("a",))])


def test_what_retired_does_not_come_back_through_agents_that_were_still_shown_it() -> None:
    again = op("Trust every price", "a", "b")
    assert kept(again, reflections=SHOWN) == ([], [(GONE, ("a", "b"))])


def test_what_retired_comes_back_when_agents_find_it_by_themselves() -> None:
    again = op("Trust every price", "c")
    assert kept(again, reflections=UNSHOWN) == ([again], [])


def test_an_agent_that_ran_before_the_entry_was_written_was_not_shown_it() -> None:
    early = reflection("a", MARGIN, version=2)
    assert kept(op("Round margins to 2 decimals", "a"), reflections=[early])[1] == []
    unknown = reflection("a", MARGIN, version=0)
    assert kept(op("Round margins to 2 decimals", "a"), reflections=[unknown])[0] == []


def test_of_two_entries_that_say_the_same_either_was_shown() -> None:
    twin = BASE.entries[0].model_copy(update={"id": "calc-00009"})
    base = BASE.model_copy(update={"entries": (*BASE.entries, twin)})
    seen = [reflection("a", "calc-00009"), reflection("b", MARGIN)]
    assert kept(op("Round margins to 2 decimals", "a", "b"), reflections=seen, base=base) == (
        [],
        [("calc-00009", ("a",)), (MARGIN, ("b",))],
    )


def test_echoes_of_several_operations_are_one_for_each_entry() -> None:
    operations = [op("Round margins to 2 decimals", "a"), op("round margins to 2 decimals!", "a", "b")]
    assert kept(*operations, reflections=SHOWN) == ([], [(MARGIN, ("a", "b"))])


def test_people_s_operations_rest_on_nothing_and_pass() -> None:
    assert kept(op("Round margins to 2 decimals"), reflections=SHOWN)[0] == [
        op("Round margins to 2 decimals")
    ]


evidence = st.lists(st.sampled_from("abcd"), unique=True, max_size=4).map(tuple)
operations = st.lists(
    st.builds(
        lambda content, ids: op(content, *ids),
        st.sampled_from(
            [*(one.content for one in BASE.entries), "Trust every price", "News", "Refund within 30 days"]
        ),
        evidence,
    ),
    max_size=6,
)


@given(operations)
def test_every_piece_of_evidence_is_news_or_echo_and_news_are_never_changed(some: list[Operation]) -> None:
    news, echoes = without_echoes(BASE, [*SHOWN, *UNSHOWN], some)
    heard = {one for echo in echoes for one in echo.evidence}
    left = {one for operation in news for one in operation.evidence}
    assert heard | left == {one for operation in some for one in operation.evidence}
    assert {one.content for one in news} <= {one.content for one in some}
    assert [one for one in some if one.content == "News"] == [one for one in news if one.content == "News"]
    assert without_echoes(BASE, [*SHOWN, *UNSHOWN], news) == (news, ())
    assert all(isinstance(one, Echo) for one in echoes)
