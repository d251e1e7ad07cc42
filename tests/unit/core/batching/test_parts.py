"""Proposals by topic: what one call of a combine reads."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.core.batching.parts import by_topic
from combee_schemas.scan import Operation, OperationKind

PARCELS = (
    "For opened parcels subtract a restocking fee of 15 % from the refund.",
    "A restocking fee of 15 % is due on opened parcels before any refund.",
    "Opened parcels cost a restocking fee: take 15 % off the refund.",
)
INVOICES = (
    "Invoices in foreign currency are converted with the rate of the booking day.",
    "Use the booking day's rate to convert invoices in foreign currency.",
    "The rate of the booking day converts foreign currency on invoices.",
)
LOGINS = (
    "Ask for the customer number before resetting a forgotten password.",
    "A forgotten password is reset only after the customer number was given.",
    "Resetting a forgotten password needs the customer number first.",
)


def added(*contents: str) -> list[Operation]:
    return [Operation(kind=OperationKind.ADD, section="OTHERS", content=content) for content in contents]


def changed(content: str, *entry_ids: str) -> Operation:
    return Operation(kind=OperationKind.UPDATE, content=content, entry_ids=entry_ids)


def together(proposals: Sequence[Operation], part_tokens: int) -> list[set[str]]:
    return [{proposals[place].content for place in part} for part in by_topic(proposals, part_tokens)]


def test_what_fits_one_call_is_one_part() -> None:
    assert by_topic(added(*PARCELS, *INVOICES), 1_000) == ((0, 1, 2, 3, 4, 5),)
    assert by_topic(added("a lesson"), 1) == ((0,),)


def test_proposals_on_one_subject_are_in_one_part_however_they_come() -> None:
    mixed = added(*(text for texts in zip(PARCELS, INVOICES, LOGINS, strict=True) for text in texts))
    wanted = [set(PARCELS), set(INVOICES), set(LOGINS)]
    assert sorted(map(sorted, together(mixed, 120))) == sorted(map(sorted, wanted))
    assert sorted(map(sorted, together(mixed[::-1], 120))) == sorted(map(sorted, wanted))


def test_what_says_the_same_is_in_one_part_even_beyond_its_tokens() -> None:
    proposals = added(*[PARCELS[0]] * 8, *INVOICES, *LOGINS)
    (place,) = [part for part in by_topic(proposals, 60) if 0 in part]
    assert set(range(8)) <= set(place)


def test_proposals_that_name_one_entry_are_in_one_part() -> None:
    proposals = [
        changed(PARCELS[0], "o-1"),
        *added(*INVOICES, *LOGINS),
        changed("Nothing of the kind.", "o-1", "o-2"),
        Operation(kind=OperationKind.REMOVE, entry_ids=("o-2",)),
    ]
    (place,) = [part for part in by_topic(proposals, 60) if 0 in part]
    assert {0, 7, 8} <= set(place)


WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "larch")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@given(st.lists(texts, min_size=1, max_size=60), st.integers(20, 400))
@settings(max_examples=100)
def test_every_proposal_is_in_one_part_and_there_are_no_more_parts_than_needed(
    contents: list[str], part_tokens: int
) -> None:
    proposals = added(*contents)
    parts = by_topic(proposals, part_tokens)
    assert sorted(place for part in parts for place in part) == list(range(len(proposals)))
    assert len(parts) <= -(-sum((60 + 6 + len(text)) // 4 for text in contents) // part_tokens)
    assert parts == by_topic(proposals, part_tokens)
    of = {text: {n for n, part in enumerate(parts) for p in part if contents[p] == text} for text in contents}
    assert all(len(found) == 1 for found in of.values())


@pytest.mark.parametrize("count", [200])
def test_parts_are_about_as_large_as_each_other(count: int) -> None:
    contents = [f"{WORDS[n % 10]} {WORDS[n // 10 % 10]} number {n} is the rule" for n in range(count)]
    sizes = [len(part) for part in by_topic(added(*contents), 300)]
    assert max(sizes) <= 1.5 * min(sizes)
