"""Membership of a process in a consumer group: dynamic, or static under an exclusive identity (KIP-345)."""

from typing import Any

from aiokafka.protocol.group import JoinGroupRequest

from combee.adapters.ports import FatalError

FENCED_INSTANCE_ID = 82
"""Kafka's error code; aiokafka does not know it."""


class Membership:
    """Membership of a process in one group, over all its sessions. If two have one identity, the later one wins.

    aiokafka's heartbeats and commits do not name the identity. So the earlier process would only learn that it is
    unknown, join again and throw the later one out, which would do the same, for ever. Therefore it first asks under
    its old member id: the broker then tells whether another process has the identity now.

    Parameters
    ----------
    group
        The group's whole name.
    slot
        The replica's number, which makes the identity; None for a dynamic member, which has none.
    """

    def __init__(self, group: str, slot: int | None) -> None:
        self._group = group
        self._slot = slot
        self._member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        self._taken = False

    @property
    def instance_id(self) -> str | None:
        """Kafka's ``group.instance.id``."""
        return None if self._slot is None else f"{self._group}.{self._slot}"

    def check(self) -> None:
        """Raise FatalError if another process has the identity now."""
        if self._taken:
            raise FatalError(
                f"another process has joined group {self._group} with slot {self._slot} and takes over: this one"
                " ends. Give each replica a slot of its own, or none"
            )

    def watch(self, consumer: Any) -> None:
        """Watch how a started consumer of aiokafka joins; a dynamic member is left alone."""
        if self._slot is None:
            return
        coordinator = consumer._coordinator  # noqa: SLF001 - aiokafka has no hook for the broker's answers
        send = coordinator._send_req  # noqa: SLF001 - the same

        async def send_request(request: Any) -> Any:
            if not isinstance(request, JoinGroupRequest):
                return await send(request)
            forgotten = self._member_id and not request._member_id  # noqa: SLF001 - the same
            answer = await send(_as_member(request, self._member_id) if forgotten else request)
            if answer.error_code == FENCED_INSTANCE_ID:
                # Another join, even one while this process ends, would throw the other out.
                self._taken = True
                await coordinator._closing  # noqa: SLF001 - the same
                return answer
            if forgotten and answer.error_code != 0:
                answer = await send(request)
            if answer.error_code == 0:
                self._member_id = answer.member_id
            return answer

        coordinator._send_req = send_request  # noqa: SLF001 - the same


def _as_member(request: Any, member_id: str) -> JoinGroupRequest:
    again = JoinGroupRequest.__new__(JoinGroupRequest)
    again.__dict__.update(vars(request) | {"_member_id": member_id})
    return again
