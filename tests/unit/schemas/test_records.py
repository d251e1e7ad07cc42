"""How headers are read, and what a copy of a record has."""

from combee_schemas.base import Message
from combee_schemas.dead_letter import Attempt, LetterId, attempt_headers, claimed_attempt
from combee_schemas.records import IDENTITY_HEADER, MAX_HEADERS, MAX_KEY_BYTES, PROOF_HEADER, Record, header
from combee_schemas.trace_context import TRACEPARENT, trace_context


def record(*headers: tuple[str, bytes | None], key: bytes | None = None, value: bytes | None = b"") -> Record:
    return Record(
        topic="outcomes", partition=0, offset=0, timestamp_ms=0, key=key, value=value, headers=headers
    )


def test_of_several_headers_of_one_name_the_last_counts_and_one_without_a_value_is_none() -> None:
    assert header(((PROOF_HEADER, b"a"), ("x", b"b"), (PROOF_HEADER, b"c")), PROOF_HEADER) == b"c"
    assert header(((PROOF_HEADER, b"a"), (PROOF_HEADER, None)), PROOF_HEADER) is None
    assert header((), PROOF_HEADER) is None


def test_attempts_and_trace_contexts_go_by_the_last_header_too() -> None:
    first, last = (Attempt(number=n, letter=LetterId(partition=0, offset=n)) for n in (1, 2))
    assert claimed_attempt((*attempt_headers(first), *attempt_headers(last))) == last
    parents = [f"00-{digit * 32}-{digit * 16}-01" for digit in "12"]
    context = trace_context(tuple((TRACEPARENT, parent.encode()) for parent in parents))
    assert context is not None
    assert context.traceparent == parents[1]


def test_a_copy_has_no_header_that_could_make_it_too_large() -> None:
    many = tuple((f"header-{at}", b"-") for at in range(10_000))
    copy = record(("empty", None), ("large", bytes(4_000_000)), ("x" * 70_000, b""), *many).to_copy
    assert copy.headers[0] == ("empty", None)
    assert len(copy.headers) == MAX_HEADERS
    assert max(len(name) for name, _ in copy.headers) < 20


def test_a_copy_has_each_header_of_ours_as_it_counts_wherever_it_stands() -> None:
    many = tuple((f"header-{at}", b"-") for at in range(100))
    whole = record((PROOF_HEADER, b"first"), *many, (IDENTITY_HEADER, b"own"), (PROOF_HEADER, b"last"))
    for name in (PROOF_HEADER, IDENTITY_HEADER):
        assert header(whole.to_copy.headers, name) == header(whole.headers, name)


def test_a_copy_has_a_key_and_a_value_that_fit_and_what_is_of_no_use_stays_so() -> None:
    copy = record(key=b"k" * 4_000_000, value=b"v" * (Message.max_bytes + 1)).to_copy
    assert (copy.key, copy.value) == (b"k" * MAX_KEY_BYTES, b"")
    small = record(("x", b"y"), key=b"k", value=None)
    assert small.to_copy == small
