"""The reflect service: one trace, one model call, one reflection."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from combee.adapters.ports import (
    Clock,
    LanguageModel,
    Log,
    Outgoing,
    PoisonError,
    PromptTooLongError,
    Record,
    TopicPartition,
    UnansweredError,
)
from combee.core.evaluation.outcomes.fold import outcome_of, says_outcome
from combee.core.formats.render import with_citations
from combee.core.names import identity
from combee.core.text.shortening import shorter_trace, task_excerpt, within
from combee.core.text.similarity.relevance import entries_to_judge
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import reflecting_method
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee.process.worker.passed_over import PassOverError
from combee.process.worker.provenance import Provenance
from combee.process.worker.retry import write
from combee.process.worker.views import Playbooks
from combee.reflect.reflected import Reflected
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.model import CHARS_PER_TOKEN, Reply
from combee_schemas.playbook import Entry
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

logger = structlog.get_logger()

TRACES = topics.TRACES.name
CONTROL = Trace(
    trace_id="control",
    playbook="control",
    task="Add 2 and 2.",
    trajectory="I added 2 and 3.",
    answer="5",
    feedback="Wrong: the answer is 4.",
    target="4",
    success=False,
)
"""A run that every model can comment on."""
NO_REPLY = Reply(body={}, usage=Usage())


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
        settings: BatchSettings,
        limiter: DeadLetterLimiter | None = None,
        *,
        provenance: Provenance | None = None,
    ) -> None:
        self._log = log
        self._model = model
        self._method = reflecting_method(settings)
        self._clock = clock
        self._limiter = limiter or DeadLetterLimiter(clock)
        self._entry_tokens = settings.reflect_entry_tokens
        self._trace_bytes = settings.reflect_trace_tokens * CHARS_PER_TOKEN
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

    def is_paused(self, playbook: str) -> bool:
        """Return whether a person's order holds a playbook back."""
        return self.playbooks.order(playbook, self._clock.now_ms()) is not None

    async def resumed(self, playbook: str, starts: Mapping[TopicPartition, int]) -> None:
        """Look up which traces of a playbook that goes on have their reflection, as after a restart."""
        await self._reflected.restore(self._log, starts, playbook)

    async def handle(self, record: Record) -> None:
        trace = self._provenance.trace(record)
        bind_contextvars(playbook=trace.playbook, trace_id=trace.trace_id)
        if lack := trace.lack:
            raise PoisonError(lack)
        if self.is_paused(trace.playbook):
            raise PassOverError(trace.playbook)
        self._limiter.check(trace.playbook)
        content = identity.fingerprint(trace)
        async with self._reflected.only_once(trace, content) as known:
            if known is None:
                # Repeats are recognised by what was sent, whatever the playbook holds by now.
                trace = with_citations(trace, self.playbooks.latest(trace.playbook).entries)
                if says_outcome(trace):
                    # Before the model call: the run's outcome must not wait for the model.
                    await self._write(topics.OUTCOMES.record(outcome_of(trace)), trace)
                try:
                    reflection = await self._reflect(trace, content)
                except UnansweredError:
                    await self._limiter.failed(trace.playbook, control=self._answers)
                    raise
                await self._write(topics.REFLECTIONS.record(reflection), trace)
                self._limiter.passed(trace.playbook)
            elif known not in {"", content}:
                logger.warning("trace_conflict")

    async def _write(self, outgoing: Outgoing, trace: Trace) -> None:
        """Write a record made from a trace, with a proof of the trace's source."""
        await write(self._log, self._provenance.vouched(outgoing, trace.source))

    async def _reflect(self, trace: Trace, content: str) -> Reflection:
        fields, reply = await self._fields(trace, self._shown(trace))
        return Reflection(
            reflection_id=self._provenance.derived_ids(trace)[0],
            **trace.passed_on,
            **fields,
            trace_id=trace.trace_id,
            task_excerpt=task_excerpt(trace),
            trace_digest=content,
            request=reply.request,
            usage=reply.usage,
            created_at_ms=self._clock.now_ms(),
        )

    async def _answers(self) -> bool:
        """Return whether the model gives a usable reply about the control run."""
        try:
            await self._fields(CONTROL, ())
        except PoisonError:
            return False
        return True

    async def _fields(self, trace: Trace, shown: Sequence[Entry]) -> tuple[dict[str, Any], Reply]:
        """Return the fields of the reflection on a run, and the model's reply.

        Raises
        ------
        UnansweredError
            If the model's reply is unusable.
        PoisonError
            If nothing can be made of the trace, and no model is asked.
        """
        read, shown, reply = await self._asked(trace, shown)
        try:
            return self._method.read_reflection(read, shown, reply.body if reply else {}), reply or NO_REPLY
        except ValueError as error:
            raise (UnansweredError if reply else PoisonError)(str(error)) from error

    async def _asked(
        self, trace: Trace, shown: Sequence[Entry]
    ) -> tuple[Trace, Sequence[Entry], Reply | None]:
        """Return the parts of the trace and the entries that the model got, and its reply if one was asked."""
        refusal = ""
        begin = within(trace, self._trace_bytes)
        for read, entries in chain([(begin, shown)], shorter_trace(begin, shown)):
            prompt = self._method.reflect_prompt(read, entries)
            if prompt is None:
                return trace, entries, None
            try:
                return read, entries, await self._model.ask(replace(prompt, owner=trace.playbook))
            except PromptTooLongError as error:
                refusal = str(error)
                logger.warning("prompt_too_long", error=refusal)
            except PoisonError as error:
                raise UnansweredError(str(error)) from error
        raise UnansweredError(f"too long for the model however it is cut: {refusal}")

    def _shown(self, trace: Trace) -> Sequence[Entry]:
        """Return the entries that the agent used or read and that the newest version still has."""
        entries = self.playbooks.latest(trace.playbook).entries
        return entries_to_judge(entries, trace, self._entry_tokens)
