"""Counting wrappers around the log (records written) and the model (questions asked)."""

from collections.abc import Callable, Sequence
from types import TracebackType

from combee.ports import LanguageModel, Log, Outgoing, PoisonError, Transaction, Transactor
from combee.telemetry.metrics import Metrics
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply

OnWritten = Callable[[Sequence[Outgoing]], None]


class _Transaction:
    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.commit_offsets = inner.commit_offsets
        self.sent: list[Outgoing] = []

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        offsets = await self._inner.send(*outgoing)
        self.sent += outgoing
        return offsets


class _Scope:
    def __init__(self, inner: Transactor, on_written: OnWritten) -> None:
        self._scope = inner.transaction()
        self._on_written = on_written
        self._sent: list[Outgoing] = []

    async def __aenter__(self) -> _Transaction:
        transaction = _Transaction(await self._scope.__aenter__())
        self._sent = transaction.sent
        return transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled = await self._scope.__aexit__(kind, error, trace)
        if error is None:
            self._on_written(self._sent)
        return handled


class _Transactor:
    def __init__(self, inner: Transactor, on_written: OnWritten) -> None:
        self._inner = inner
        self._on_written = on_written
        self.close = inner.close

    def transaction(self) -> _Scope:
        return _Scope(self._inner, self._on_written)


class CountedLog:
    """The ``Log`` port; ``on_written`` hears of records once they are acknowledged or committed."""

    def __init__(self, inner: Log, on_written: OnWritten) -> None:
        self._inner = inner
        self._on_written = on_written
        self.consumer = inner.consumer
        self.read = inner.read
        self.read_at = inner.read_at
        self.follow = inner.follow
        self.partitions = inner.partitions
        self.partition_for = inner.partition_for
        self.beginnings = inner.beginnings
        self.ends = inner.ends
        self.settled = inner.settled
        self.offsets_at = inner.offsets_at
        self.committed = inner.committed
        self.close = inner.close

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        offsets = await self._inner.produce(*outgoing)
        self._on_written(outgoing)
        return offsets

    async def transactor(self, name: str) -> _Transactor:
        return _Transactor(await self._inner.transactor(name), self._on_written)


class CountedModel:
    """The ``LanguageModel`` port; questions in flight and re-asks are counted."""

    def __init__(self, inner: LanguageModel, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics
        self.drain = inner.drain
        self.close = inner.close

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        usage = Usage()
        self._metrics.asking()
        try:
            reply = await self._inner.ask(prompt, priority=priority)
            usage = reply.usage
        except PoisonError as error:
            usage = error.usage
            raise
        finally:
            self._metrics.asked(usage)
        return reply
