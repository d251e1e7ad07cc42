"""A language model whose answers are recorded; a replay that asks the same question reuses them."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import structlog

from combee.adapters.ports import Clock, CombeeError, LanguageModel, Log, Outgoing, TopicPartition
from combee_schemas import topics
from combee_schemas.answer import Answer
from combee_schemas.codec import CodecError
from combee_schemas.model import Prompt, Reply
from combee_schemas.topics import key_of

logger = structlog.get_logger()

MAX_WAITING = 100
"""Maximum number of answers being written; a further answer waits until one is written."""


HashOf = Callable[[Prompt], str]
"""From a prompt to the SHA-256 of the request that it becomes."""


class RecordedAnswers:
    """The answers in a log, by request. Memory holds their places, not their texts."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places: dict[bytes, tuple[int, int]] = {}
        self._loading: asyncio.Task[None] | None = None

    async def find(self, request: str) -> Answer | None:
        """Return the answer to a request; None if there is none, or it has expired."""
        if self._loading is None or _has_failed(self._loading):
            self._loading = asyncio.create_task(self._load())
        await asyncio.shield(self._loading)
        place = self._places.get(bytes.fromhex(request))
        if place is None:
            return None
        partition, offset = place
        source = TopicPartition(topic=topics.ANSWERS.name, partition=partition)
        return topics.ANSWERS.read_or_none((await self._log.read_at(source, [offset])).get(offset))

    async def _load(self) -> None:
        async def part(partition: int) -> None:
            source = TopicPartition(topic=topics.ANSWERS.name, partition=partition)
            async with aclosing(self._log.read(source, 0)) as records:
                async for record in records:
                    try:
                        self._places.setdefault(bytes.fromhex(key_of(record)), (partition, record.offset))
                    except ValueError:  # not a key of ours
                        continue

        await asyncio.gather(*map(part, range(await self._log.partitions(topics.ANSWERS.name))))
        logger.info("recorded_answers", count=len(self._places))

    async def close(self) -> None:
        """Stop reading."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)


def _has_failed(loading: asyncio.Task[None]) -> bool:
    return loading.done() and (loading.cancelled() or loading.exception() is not None)


def _body(answer: Answer) -> dict[str, Any] | None:
    """Return the reply in a recorded answer; None if it is not a reply that Combee writes."""
    try:
        body = json.loads(answer.reply)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


class RecordedModel:
    """The ``LanguageModel`` port around another: it records answers, and asks no recorded question again.

    A record is written in the background and may be lost in a crash: a replay then pays for that call again.
    """

    def __init__(
        self,
        model: LanguageModel,
        hash_of: HashOf,
        log: Log,
        clock: Clock,
        *,
        known: RecordedAnswers | None = None,
    ) -> None:
        self._model = model
        self._hash_of = hash_of
        self._log = log
        self._clock = clock
        self._known = known
        self._writing: set[asyncio.Task[None]] = set()
        self._trouble = ""
        """Why the last answer was not recorded; the same reason is logged once."""

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the recorded reply, else a new one."""
        answer = await self._known.find(self._hash_of(prompt)) if self._known is not None else None
        if answer is not None and (body := _body(answer)) is not None:
            usage = answer.usage
            reused = {"reused": usage.calls, "reused_tokens": usage.tokens_in + usage.tokens_out}
            return Reply(body=body, usage=usage.model_copy(update=reused), request=answer.request)
        reply = await self._model.ask(prompt, priority=priority)
        # Hashed now: only after an answer it is known which options the server takes. A re-ask is another request.
        same = reply.request and not reply.usage.re_asks
        await self._record(reply.request if same else self._hash_of(prompt), reply)
        return reply

    async def _record(self, request: str, reply: Reply) -> None:
        answer = Answer(
            request=request,
            reply=json.dumps(dict(reply.body), ensure_ascii=False, separators=(",", ":")),
            usage=reply.usage,
            answered_at_ms=self._clock.now_ms(),
        )
        try:
            outgoing = topics.ANSWERS.record(answer)
        except CodecError as error:  # a reply beyond the size of a record
            logger.warning("answer_not_recorded", reason=str(error))
            return
        writing = asyncio.create_task(self._write(outgoing))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        if len(self._writing) > MAX_WAITING:
            await asyncio.wait(self._writing, return_when=asyncio.FIRST_COMPLETED)

    async def _write(self, outgoing: Outgoing) -> None:
        try:
            await self._log.produce(outgoing)
        except CombeeError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.warning("answer_not_recorded", reason=self._trouble)
        else:
            self._trouble = ""

    def drain(self) -> None:
        """Start no further call."""
        self._model.drain()

    async def close(self) -> None:
        """Write what is on its way, drop connections."""
        await asyncio.gather(*self._writing)
        if self._known is not None:
            await self._known.close()
        await self._model.close()
