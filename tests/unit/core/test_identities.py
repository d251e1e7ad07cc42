"""An id belongs to its source: identities of one id differ, and nobody can make one that is another's."""

from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st

from combee.core.names.identity import (
    MARK,
    MAX_ID,
    claimed_identities,
    full_name,
    identity_of,
    is_sent_as,
    meant_by,
    owner_of,
)
from combee_schemas.base import Source
from combee_schemas.records import PROOF_HEADER

IDS = st.text(st.sampled_from("ab~y%"), min_size=1, max_size=8) | st.sampled_from(
    [f"r{MARK}shop", f"r{MARK}unproven", f"r{MARK}", MARK, "r" * 190, "r" * 200, f"{'r' * 190}{MARK}a"]
)
OWNERS = st.sampled_from(["", "shop", "desk", "a~by~b", "%7E", "~", "~" * 80, "key:web", "n" * 80])


@given(one=st.tuples(IDS, OWNERS), other=st.tuples(IDS, OWNERS))
@example(one=(f"r{MARK}shop", ""), other=("r", "shop"))
@example(one=(f"r{MARK}unproven", ""), other=("r", ""))
def test_no_two_of_id_and_owner_come_to_one_identity(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (identity_of(*one) == identity_of(*other)) == (one == other)


@given(sent_id=IDS, owner=OWNERS)
def test_an_identity_is_an_id_and_is_found_by_what_was_sent_and_by_its_full_name(
    sent_id: str, owner: str
) -> None:
    identity = identity_of(sent_id, owner)
    assert 1 <= len(identity) <= MAX_ID
    assert is_sent_as(identity, sent_id)
    assert is_sent_as(identity, identity)
    assert is_sent_as(identity, full_name(identity))


def test_what_proves_nothing_keeps_its_id_and_so_does_all_where_one_source_alone_may_write() -> None:
    assert [
        owner_of(source) for source in (None, Source(name="shop"), Source(name="shop", proven="prefix"))
    ] == [""] * 3
    assert owner_of(Source(name="shop", proven="key")) == "shop"
    assert identity_of("r-1", "") == "r-1"


def test_who_asks_for_an_id_means_all_that_was_sent_under_it_or_the_one_that_is_named_in_full() -> None:
    known = [identity_of("r-1", owner) for owner in ("", "shop", "desk")] + ["r-2"]
    assert meant_by("r-1", known) == known[:3]
    for one, other in combinations(known[:3], 2):
        assert meant_by(full_name(one), known) == [one]
        assert meant_by(full_name(other), known) == [other]
    assert meant_by("r-2", known) == ["r-2"]
    assert meant_by("r", known) == []


def test_without_the_secrets_a_record_that_is_signed_may_be_its_source_s_or_nobody_s() -> None:
    signed = ((PROOF_HEADER, b"hmac-sha256:"),)
    assert claimed_identities("r-1", Source(name="shop"), signed) == (identity_of("r-1", "shop"), "r-1")
    assert claimed_identities("r-1", Source(name="shop"), ()) == ("r-1",)
    assert claimed_identities("r-1", None, signed) == ("r-1",)
