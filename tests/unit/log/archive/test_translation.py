"""Every place in the log that a message names is a new one after a restore; nothing else changes."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from combee.core.log.archive.places import Places
from combee.core.log.archive.translation import OWN_WAY
from combee_schemas import topics
from combee_schemas.archive import ArchiveHeader, GroupPositions, TopicContents
from combee_schemas.marks import Place
from combee_schemas.records import Record, TopicPartition
from combee_schemas.topics import TOPICS, partition_of

REFLECTIONS = topics.REFLECTIONS.name
NAMES = [f"p{number}{part}" for number in range(6) for part in ("", "@short", "#deleted")]


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield a model and all that it consists of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from models(info.annotation)
    elif get_origin(kind) is not None or isinstance(kind, UnionType):
        for part in get_args(kind):
            yield from models(part)


def test_every_field_that_is_a_place_is_known() -> None:
    kinds = {model for topic in TOPICS for kind in (topic.message, *topic.beside) for model in models(kind)}
    places = {
        kind.__name__: frozenset(
            name
            for name, field in kind.model_fields.items()
            if name.endswith(("offset", "partition", "retained_from"))
            and not any(isinstance(mark, Place) for mark in field.metadata)
        )
        for kind in kinds
    }
    assert {name: fields for name, fields in places.items() if fields} == OWN_WAY


# ---- places


def record(name: str, partition: int, offset: int) -> Record:
    return Record(
        topic=REFLECTIONS, partition=partition, offset=offset, timestamp_ms=0, key=name.encode(), value=b""
    )


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Record], int, tuple[int, ...]]:
    """Return records with gaps, as an archive has them, the partitions and what a group had committed."""
    count = draw(st.integers(1, 4))
    drawn, nexts = list[Record](), [0] * count
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=40)):
        partition = partition_of(REFLECTIONS, name.encode(), count)
        nexts[partition] += draw(st.integers(1, 3))
        drawn.append(record(name, partition, nexts[partition] - 1))
    committed = tuple(draw(st.integers(-1, end)) for end in nexts)
    return sorted(drawn, key=lambda one: (one.partition, one.offset)), count, committed


def settled(
    drawn: tuple[list[Record], int, tuple[int, ...]], after: int, firsts: tuple[int, ...] = ()
) -> tuple[Places, dict[tuple[int, int], tuple[int, int]]]:
    """Return the places, and of each record the old one and the new one."""
    records, count, committed = drawn
    header = ArchiveHeader(
        prefix="t",
        topics=(TopicContents(name=REFLECTIONS, partitions=count, ends=(1000,) * count),),
        positions=(GroupPositions(group="shuffle", topic=REFLECTIONS, offsets=committed),),
        cut_at_ms=0,
    )
    places = Places(header, {REFLECTIONS: after})
    for one in records:
        places.add(one, places.target(topics.REFLECTIONS, one, None))
    places.settle({REFLECTIONS: firsts or (0,) * count})
    moved = {}
    for one in records:
        new = places.exact(REFLECTIONS, one.partition, one.offset)
        assert new is not None
        moved[one.partition, one.offset] = new
    return places, moved


@given(drawn=logs(), after=st.integers(1, 6))
def test_places_are_new_ones_without_gaps_on_the_keys_partition(drawn: Any, after: int) -> None:
    places, moved = settled(drawn, after)
    for number in range(after):
        offsets = sorted(offset for partition, offset in moved.values() if partition == number)
        end = places.totals()[TopicPartition(topic=REFLECTIONS, partition=number)]
        assert offsets == list(range(end))
    for one in drawn[0]:
        playbook = (one.key or b"")[:2]
        assert moved[one.partition, one.offset][0] == partition_of(REFLECTIONS, playbook, after)


@given(drawn=logs(), after=st.integers(1, 6), offset=st.integers(0, 130))
def test_up_to_an_offset_and_from_one_on_a_playbook_has_the_same_records(
    drawn: Any, after: int, offset: int
) -> None:
    places, moved = settled(drawn, after)
    for one in drawn[0]:
        name, now_at = (one.key or b"").decode(), moved[one.partition, one.offset][1]
        assert (one.offset >= offset) == (now_at >= places.first(topics.REFLECTIONS, name, offset))
        if name in NAMES:
            assert (one.offset <= offset) == (now_at <= places.through(topics.REFLECTIONS, name, offset))


@given(drawn=logs(), after=st.integers(1, 6))
def test_a_group_goes_on_with_what_it_had_not_passed(drawn: Any, after: int) -> None:
    places, moved = settled(drawn, after)
    committed = places.positions().get("shuffle", {})
    for one in drawn[0]:
        partition, offset = moved[one.partition, one.offset]
        was_passed = one.offset < drawn[2][one.partition]
        is_passed = offset < committed.get(TopicPartition(topic=REFLECTIONS, partition=partition), 0)
        assert was_passed == is_passed


@given(drawn=logs())
def test_into_as_many_partitions_the_order_stays(drawn: Any) -> None:
    _, moved = settled(drawn, drawn[1])
    assert sorted(moved) == [old for old, _ in sorted(moved.items(), key=lambda item: item[1])]
    assert all(old[0] == new[0] for old, new in moved.items())


@given(count=st.integers(1, 5), offsets=st.lists(st.integers(0, 999), min_size=2, unique=True))
def test_what_has_expired_stands_below_everything_and_nowhere_twice(count: int, offsets: list[int]) -> None:
    places, _ = settled(([], count, (0,) * count), 3, (1000,) * count)
    gone = {
        (partition, at): places.gone(REFLECTIONS, partition, at)
        for partition in range(count)
        for at in offsets
    }
    assert len(set(gone.values())) == len(gone)
    assert max(gone.values()) < -1
    again = {places.gone(REFLECTIONS, partition, at) for (partition, _), at in gone.items()}
    assert max(again) < min(gone.values()), "what was gone before stays apart from what is gone since"
    for partition in range(count):
        in_order = [gone[partition, at] for at in sorted(offsets)]
        assert in_order == sorted(in_order)
    assert places.through(topics.REFLECTIONS, "p1", 7) == 0, "at or below it nothing is left"


@pytest.mark.parametrize("offset", [-1, -7])
def test_nothing_yet_stays_nothing_yet(offset: int) -> None:
    places, _ = settled(([], 2, (0, 0)), 3)
    assert places.through(topics.REFLECTIONS, "p1", offset) == offset
    assert places.of_playbook(topics.HISTORY, "p1", -1) == -1
