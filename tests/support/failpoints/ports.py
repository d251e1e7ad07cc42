"""A log and a model that inject faults: the process can die just before or just after each write and call."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType

from combee.adapters.ports import (
    NO_NOTES,
    Consumer,
    LanguageModel,
    Log,
    OnAssigned,
    Outgoing,
    Record,
    TopicPartition,
    Transaction,
    Transactor,
)
from combee.process.telemetry.counted import LookUps
from combee_schemas.model import Prompt, Reply
from support.failpoints.points import Failpoint


class FaultInjectingTransaction:
    """The ``Transaction`` port."""

    def __init__(self, inner: Transaction, failpoint: Failpoint) -> None:
        self._inner = inner
        self._failpoint = failpoint

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        self._failpoint.check()
        offsets = await self._inner.send(*outgoing)
        self._failpoint.reach("sent in transaction")
        return offsets

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._failpoint.check()
        await self._inner.commit_offsets(group, offsets)
        self._failpoint.reach("offsets in transaction")


class _FaultInjectingScope:
    def __init__(self, inner: Transactor, failpoint: Failpoint) -> None:
        self._scope = inner.transaction()
        self._failpoint = failpoint

    async def __aenter__(self) -> FaultInjectingTransaction:
        self._failpoint.reach("before transaction")
        return FaultInjectingTransaction(await self._scope.__aenter__(), self._failpoint)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._failpoint.dead:
            return  # killed: the transaction stays open until its id is initialised again
        if error is None:
            self._failpoint.reach("before commit")
        await self._scope.__aexit__(kind, error, trace)
        if error is None:
            self._failpoint.reach("after commit")


class FaultInjectingTransactor:
    """The ``Transactor`` port."""

    def __init__(self, inner: Transactor, failpoint: Failpoint) -> None:
        self._inner = inner
        self._failpoint = failpoint

    def transaction(self) -> _FaultInjectingScope:
        return _FaultInjectingScope(self._inner, self._failpoint)

    async def close(self) -> None:
        if not self._failpoint.dead:
            await self._inner.close()


class FaultInjectingConsumer:
    """The ``Consumer`` port."""

    def __init__(self, inner: Consumer, failpoint: Failpoint) -> None:
        self._inner = inner
        self._failpoint = failpoint
        self.start_offset = inner.start_offset
        self.note = inner.note
        self.seek = inner.seek
        self.positions = inner.positions
        self.pause = inner.pause
        self.resume = inner.resume
        self.close = inner.close  # a dead member leaves its group, too: its session ends

    async def poll(self, timeout_s: float) -> Sequence[Record]:
        self._failpoint.check()
        return await self._inner.poll(timeout_s)

    async def commit(
        self, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] = NO_NOTES
    ) -> None:
        self._failpoint.reach("before offset commit")
        await self._inner.commit(offsets, notes)
        self._failpoint.reach("after offset commit")


class FaultInjectingLog(LookUps):
    """The ``Log`` port as one process sees it."""

    def __init__(self, inner: Log, failpoint: Failpoint) -> None:
        super().__init__(inner)
        self._inner = inner
        self._failpoint = failpoint

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        self._failpoint.reach("before produce")
        offsets = await self._inner.produce(*outgoing)
        self._failpoint.reach("after produce")
        return offsets

    async def consumer(
        self, group: str, topics: Sequence[str], on_assigned: OnAssigned
    ) -> FaultInjectingConsumer:
        self._failpoint.check()
        return FaultInjectingConsumer(await self._inner.consumer(group, topics, on_assigned), self._failpoint)

    async def transactor(self, name: str) -> FaultInjectingTransactor:
        self._failpoint.check()
        return FaultInjectingTransactor(await self._inner.transactor(name), self._failpoint)

    async def read(
        self, source: TopicPartition, start: int, end: int | None = None
    ) -> AsyncGenerator[Record, None]:
        async for record in self._inner.read(source, start, end):
            self._failpoint.check()
            yield record

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        async for records in self._inner.follow(topic, starts):
            self._failpoint.check()
            yield records

    async def close(self) -> None:
        """The inner log outlives every process."""


class FaultInjectingModel:
    """The ``LanguageModel`` port as one process sees it."""

    def __init__(self, inner: LanguageModel, failpoint: Failpoint) -> None:
        self._inner = inner
        self._failpoint = failpoint
        self.drain = inner.drain
        self.close = inner.close

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        self._failpoint.reach("before ask")
        reply = await self._inner.ask(prompt, priority=priority)
        self._failpoint.reach("after ask")
        return reply
