"""A partition of shuffle: what its windows keep in memory."""

from typing import Any
from unittest.mock import AsyncMock

import pytest

from combee.core.batching.window import Close, Waiting
from combee.shuffle.partition import Manifests, ShuffleState
from combee_schemas.base import Shown
from combee_schemas.batch import Member
from combee_schemas.codec import encode
from combee_schemas.reflection import BulletTag, Reflection

LINE, IN_MEMORY = "support/refunds", 1 << 20
IDS = tuple(f"{n:05}" for n in range(10_000))
LISTS: dict[str, dict[str, Any]] = {
    "tags": {"bullet_tags": tuple(BulletTag(id=one, tag="helpful") for one in IDS)},
    "used": {"bullet_ids": IDS},
    "shown": {"shown": Shown(version=1, entry_ids=IDS, digests=IDS)},
    "data": {"side_info": dict.fromkeys(IDS, "")},
}


@pytest.mark.parametrize("long", LISTS)
def test_a_body_counts_as_what_it_takes_in_memory_and_not_in_the_log(long: str) -> None:
    """A reflection of 237 KB was 6 MB of tags: shuffle held more than it may use, again after every start."""
    body = Reflection(reflection_id="r", playbook=LINE, key_insight="a lesson", **LISTS[long])
    size = len(encode(body))
    assert size < IN_MEMORY / 2
    state = ShuffleState(
        number=0,
        transactor=AsyncMock(),
        manifests=Manifests(horizon=1),
        seen={},
        committed={},
        memory_bytes=IN_MEMORY,
    )
    for at in range(2):
        item = Waiting(member=Member(offset=at, reflection_id=f"r-{at}"), size=size, seen_at=0, body=body)
        state.wait(LINE, item, batch_size=9)
    assert sum(item.body is not None for item in state.window(LINE).waiting) < 2
    state.take(LINE, Close(count=2, reason="wait"))
    assert state.body_bytes == 0
