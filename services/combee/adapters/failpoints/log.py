"""A log whose process can die at any of its writes, just before or just after the write has its effect."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType

from combee.adapters.failpoints.fuse import Fuse
from combee.ports import Consumer, Log, OnAssigned, Outgoing, Record, TopicPartition, Transaction, Transactor


class MortalTransaction:
    """The ``Transaction`` port."""

    def __init__(self, inner: Transaction, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        self._fuse.check()
        offsets = await self._inner.send(*outgoing)
        self._fuse.burn("sent in transaction")
        return offsets

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._fuse.check()
        await self._inner.commit_offsets(group, offsets)
        self._fuse.burn("offsets in transaction")


class _Scope:
    def __init__(self, inner: Transactor, fuse: Fuse) -> None:
        self._scope = inner.transaction()
        self._fuse = fuse

    async def __aenter__(self) -> MortalTransaction:
        self._fuse.burn("before transaction")
        return MortalTransaction(await self._scope.__aenter__(), self._fuse)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fuse.dead:
            return  # killed: the transaction stays open until its id is initialised again
        if error is None:
            self._fuse.burn("before commit")
        await self._scope.__aexit__(kind, error, trace)
        if error is None:
            self._fuse.burn("after commit")


class MortalTransactor:
    """The ``Transactor`` port."""

    def __init__(self, inner: Transactor, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def transaction(self) -> _Scope:
        return _Scope(self._inner, self._fuse)

    async def close(self) -> None:
        if not self._fuse.dead:
            await self._inner.close()


class MortalConsumer:
    """The ``Consumer`` port."""

    def __init__(self, inner: Consumer, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse
        self.start_offset = inner.start_offset
        self.positions = inner.positions
        self.pause = inner.pause
        self.resume = inner.resume
        self.close = inner.close  # a dead member leaves its group, too: its session ends

    async def poll(self, timeout_s: float) -> Sequence[Record]:
        self._fuse.check()
        return await self._inner.poll(timeout_s)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._fuse.burn("before offset commit")
        await self._inner.commit(offsets)
        self._fuse.burn("after offset commit")


class MortalLog:
    """The ``Log`` port as one process sees it."""

    def __init__(self, inner: Log, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse
        self.partitions = inner.partitions
        self.partition_for = inner.partition_for
        self.beginnings = inner.beginnings
        self.ends = inner.ends
        self.offsets_at = inner.offsets_at
        self.committed = inner.committed
        self.read_at = inner.read_at

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        self._fuse.burn("before produce")
        offsets = await self._inner.produce(*outgoing)
        self._fuse.burn("after produce")
        return offsets

    async def consumer(self, group: str, topics: Sequence[str], on_assigned: OnAssigned) -> MortalConsumer:
        self._fuse.check()
        return MortalConsumer(await self._inner.consumer(group, topics, on_assigned), self._fuse)

    async def transactor(self, name: str) -> MortalTransactor:
        self._fuse.check()
        return MortalTransactor(await self._inner.transactor(name), self._fuse)

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        async for record in self._inner.read(source, start, end):
            self._fuse.check()
            yield record

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        async for records in self._inner.follow(topic, starts):
            self._fuse.check()
            yield records

    async def close(self) -> None:
        """The inner log outlives every process."""
