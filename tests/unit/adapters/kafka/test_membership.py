"""What a static member makes of the broker's answers to its joins; the broker itself is in ``tests/kafka``."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.group import JoinGroupRequest

from combee.adapters.kafka.membership import FENCED_INSTANCE_ID, Membership
from combee.adapters.ports import FatalError

UNKNOWN_MEMBER_ID = 25


class Group:
    """The coordinator of a consumer; ``codes`` are the broker's answers, ``asked`` the member ids of the joins."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[str] = []
        self._closing = asyncio.get_running_loop().create_future()

    async def _send_req(self, request: Any) -> Any:
        self.asked.append(request._member_id)
        return SimpleNamespace(error_code=self.codes.pop(0), member_id=f"m{len(self.asked)}")

    async def join(self, member_id: str) -> None:
        request = JoinGroupRequest("g", 10_000, 10_000, member_id, "g.0", "consumer", [("range", b"")])
        await self._send_req(request)


def watched(*codes: int) -> tuple[Membership, Group]:
    membership, group = Membership("g", slot=0), Group(*codes)
    membership.watch(SimpleNamespace(_coordinator=group))
    return membership, group


async def test_member_whom_the_broker_forgot_asks_under_its_old_id_first() -> None:
    membership, group = watched(0, UNKNOWN_MEMBER_ID, 0)
    await group.join("")
    await group.join("")
    assert group.asked == ["", "m1", ""]
    membership.check()


@pytest.mark.parametrize("member_id", ["", "m1"], ids=["forgotten", "while it joins"])
async def test_member_whose_identity_another_has_ends_and_joins_no_more(member_id: str) -> None:
    membership, group = watched(0, FENCED_INSTANCE_ID)
    await group.join("")
    group._closing.set_result(None)
    await group.join(member_id)
    assert group.asked == ["", "m1"]
    with pytest.raises(FatalError, match="takes over"):
        membership.check()
