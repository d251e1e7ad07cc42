"""What a copy of a record has of its headers."""

from combee_schemas.records import MAX_HEADERS, PROOF_HEADER, Record


def test_a_copy_has_no_header_that_could_make_it_too_large() -> None:
    many = tuple((f"header-{at}", b"-") for at in range(10_000))
    headers = ((PROOF_HEADER, b"proof"), ("empty", None), ("large", bytes(4_000_000)), *many)
    record = Record(
        topic="outcomes", partition=0, offset=0, timestamp_ms=0, key=None, value=b"", headers=headers
    )
    assert record.headers_to_copy[:2] == ((PROOF_HEADER, b"proof"), ("empty", None))
    assert len(record.headers_to_copy) < MAX_HEADERS
    assert "large" not in dict(record.headers_to_copy)
