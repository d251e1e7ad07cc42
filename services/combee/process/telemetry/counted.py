"""Wrappers that count records written to the log, and name their span, and that count questions to the model."""

from collections.abc import Callable, Sequence
from types import TracebackType

from combee.adapters.ports import (
    NO_TRACING,
    LanguageModel,
    Log,
    Notes,
    Outgoing,
    PoisonError,
    Tracing,
    Transaction,
    Transactor,
)
from combee.process.telemetry.metrics import Metrics
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply

OnWritten = Callable[[Sequence[Outgoing]], None]


class _Transaction:
    def __init__(self, inner: Transaction, tracing: Tracing) -> None:
        self._inner = inner
        self._tracing = tracing
        self.commit_offsets = inner.commit_offsets
        self.sent: list[Outgoing] = []

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        offsets = await self._inner.send(*map(self._tracing.stamped, outgoing))
        self.sent += outgoing
        return offsets


class _Scope:
    def __init__(self, inner: Transactor, on_written: OnWritten, tracing: Tracing) -> None:
        self._scope = inner.transaction()
        self._tracing = tracing
        self._on_written = on_written
        self._sent: list[Outgoing] = []

    async def __aenter__(self) -> _Transaction:
        transaction = _Transaction(await self._scope.__aenter__(), self._tracing)
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
    def __init__(self, inner: Transactor, on_written: OnWritten, tracing: Tracing) -> None:
        self._inner = inner
        self._on_written = on_written
        self._tracing = tracing
        self.close = inner.close

    def transaction(self) -> _Scope:
        return _Scope(self._inner, self._on_written, self._tracing)


class LookUps:
    """The methods of the ``Log`` port that a wrapper passes on unchanged."""

    def __init__(self, inner: Log) -> None:
        self.partitions = inner.partitions
        self.partition_for = inner.partition_for
        self.beginnings = inner.beginnings
        self.ends = inner.ends
        self.settled = inner.settled
        self.offsets_at = inner.offsets_at
        self.committed = inner.committed
        self.retention_ms = inner.retention_ms
        self.read_at = inner.read_at


class CountedLog(LookUps):
    """The ``Log`` port; ``on_written`` is called with records once they are acknowledged or committed.

    With ``tracing`` they name the span that they were written in.
    """

    def __init__(self, inner: Log, on_written: OnWritten, tracing: Tracing = NO_TRACING) -> None:
        super().__init__(inner)
        self._inner = inner
        self._on_written = on_written
        self._tracing = tracing
        self.consumer = inner.consumer
        self.read = inner.read
        self.follow = inner.follow
        self.close = inner.close

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        offsets = await self._inner.produce(*map(self._tracing.stamped, outgoing))
        self._on_written(outgoing)
        return offsets

    async def transactor(self, name: str) -> _Transactor:
        return _Transactor(await self._inner.transactor(name), self._on_written, self._tracing)


class CountedModel:
    """The ``LanguageModel`` port; questions in flight and re-asks are counted.

    With ``tracing`` each question is a span by the GenAI conventions, without any text of it.
    """

    def __init__(
        self, inner: LanguageModel, metrics: Metrics, tracing: Tracing = NO_TRACING, name: str = ""
    ) -> None:
        self._inner = inner
        self._metrics = metrics
        self._tracing = tracing
        self._span = f"chat {name}"
        self._notes: Notes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": name}
        self.drain = inner.drain
        self.close = inner.close

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        usage = Usage()
        self._metrics.asking()
        with self._tracing.calling(self._span, self._notes):
            try:
                reply = await self._inner.ask(prompt, priority=priority)
                usage = reply.usage
            except PoisonError as error:
                usage = error.usage
                raise
            finally:
                self._metrics.asked(usage)
                self._tracing.note(
                    {
                        "gen_ai.usage.input_tokens": usage.tokens_in,
                        "gen_ai.usage.output_tokens": usage.tokens_out,
                        "combee.model_calls": usage.calls,
                    }
                )
        return reply
