"""The reflect service: one trace, one model call, one reflection."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import structlog
from structlog.contextvars import bind_contextvars

from combee.core import identity
from combee.core.formats.intake import nothing_said
from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.outcomes.fold import outcome_of, says_outcome
from combee.core.prompt import CHARS_PER_TOKEN
from combee.core.shortening import shorter_trace, task_excerpt, within
from combee.core.similarity.relevance import entries_to_judge
from combee.ports import (
    Clock,
    LanguageModel,
    Log,
    Outgoing,
    PoisonError,
    PromptTooLongError,
    Record,
    TopicPartition,
)
from combee.reflect.reflected import Reflected
from combee.worker.dead_letter_limiter import DeadLetterLimiter
from combee.worker.provenance import Provenance
from combee.worker.retry import write
from combee.worker.views import Playbooks
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.model import Reply
from combee_schemas.playbook import Entry
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

logger = structlog.get_logger()

TRACES = topics.TRACES.name
ENTRY_TOKENS, TRACE_TOKENS = 2_000, 32_000


class ReflectHandler:
    """At least once: the reflection's id follows from playbook and trace id, so shuffle drops a repeat."""

    service = "reflect"
    topics = (TRACES,)
    bounded_topics = frozenset({TRACES})

    def __init__(
        self,
        log: Log,
        model: LanguageModel,
        clock: Clock,
        method: Method = ace,
        limiter: DeadLetterLimiter | None = None,
        *,
        entry_tokens: int = ENTRY_TOKENS,
        trace_tokens: int = TRACE_TOKENS,
        provenance: Provenance | None = None,
    ) -> None:
        self._log = log
        self._model = model
        self._method = method
        self._clock = clock
        self._limiter = limiter or DeadLetterLimiter(clock)
        self._entry_tokens = entry_tokens
        self._trace_bytes = trace_tokens * CHARS_PER_TOKEN
        self._provenance = provenance or Provenance()
        self._reflected = Reflected(self._provenance)
        self.playbooks = Playbooks(log)

    async def assigned(self, starts: dict[TopicPartition, int]) -> None:
        """Reflections that are in the log already are not asked for again."""
        await self._reflected.restore(self._log, starts)

    def drain(self) -> None:
        self._model.drain()

    def poisoned(self, record: Record) -> tuple[str, str]:
        trace = topics.TRACES.read_or_none(record)
        return (trace.trace_id, trace.playbook) if trace else ("", "")

    async def handle(self, record: Record) -> None:
        trace = self._provenance.trace(record)
        bind_contextvars(playbook=trace.playbook, trace_id=trace.trace_id)
        if lack := nothing_said(trace):
            raise PoisonError(lack)
        self._limiter.check(trace.playbook)
        content = identity.fingerprint(trace)
        async with self._reflected.only_once(trace, content) as known:
            if known is None:
                if says_outcome(trace):
                    # First: how a run went is known however long the model takes.
                    await self._write(topics.OUTCOMES.record(outcome_of(trace)), trace)
                reflection = await self._reflect(trace, content)
                await self._write(topics.REFLECTIONS.record(reflection), trace)
                self._limiter.passed(trace.playbook)
            elif known not in {"", content}:
                logger.warning("trace_conflict")

    async def _write(self, outgoing: Outgoing, trace: Trace) -> None:
        """Write what was made of a trace: it proves the trace's source."""
        await write(self._log, self._provenance.vouched(outgoing, trace.source))

    async def _reflect(self, trace: Trace, content: str) -> Reflection:
        read, shown, reply = await self._asked(trace, self._shown(trace))
        try:
            fields = self._method.read_reflection(read, shown, reply.body)
        except ValueError as error:
            raise PoisonError(str(error)) from error
        return Reflection(
            reflection_id=self._provenance.derived_ids(trace)[0],
            playbook=trace.playbook,
            **fields,
            trace_id=trace.trace_id,
            task_excerpt=task_excerpt(trace),
            trace_digest=content,
            shown=trace.shown,
            bullet_ids=trace.bullet_ids,
            score=trace.score,
            success=trace.success,
            source=trace.source,
            request=reply.request,
            usage=reply.usage,
            created_at_ms=self._clock.now_ms(),
        )

    async def _asked(self, trace: Trace, shown: Sequence[Entry]) -> tuple[Trace, Sequence[Entry], Reply]:
        """Return the reply, and what of the trace and the entries the model was given."""
        refusal = ""
        begin = within(trace, self._trace_bytes)
        for read, entries in chain([(begin, shown)], shorter_trace(begin, shown)):
            prompt = self._method.reflect_prompt(read, entries)
            if prompt is None:
                return trace, entries, Reply(body={}, usage=Usage())
            try:
                return read, entries, await self._model.ask(replace(prompt, owner=trace.playbook))
            except PromptTooLongError as error:
                refusal = str(error)
                logger.warning("prompt_too_long", error=refusal)
        raise PoisonError(f"too long for the model however it is cut: {refusal}")

    def _shown(self, trace: Trace) -> Sequence[Entry]:
        """Return the entries that the agent used, or was shown, as far as the newest version still has them."""
        entries = self.playbooks.latest(trace.playbook).entries
        return entries_to_judge(entries, trace, self._entry_tokens)
