"""Calls of a model: limits, retries, and dropping options that a server refuses."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

import structlog

from combee.adapters.asking.drain import DrainScope
from combee.adapters.asking.errors import CallFailedError, CallRefusedError
from combee.adapters.asking.limits import Limits
from combee.adapters.asking.replies import Answer
from combee.adapters.asking.retry import RetryPolicy, tried
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.wire import Message, RequestOptions, estimate_tokens, option_to_drop, request
from combee.adapters.ports import ModelCall, OnModelCall, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, request_body, request_hash

_log = structlog.get_logger()

NOTHING = Usage()


class ModelHealth:
    """Whether calls are answered, and the reason while they are not."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.permanent = False

    def failed(self, error: CallFailedError) -> None:
        """Record a failed call; each reason is logged once."""
        text = str(error)
        if text != self.trouble:
            log = _log.error if error.permanent else _log.warning
            log("the model does not answer", reason=text, permanent=error.permanent)
        self.trouble, self.permanent = text, error.permanent

    def answered(self) -> None:
        """Record that the server answers."""
        if self.trouble is not None:
            _log.info("the model answers again")
        self.trouble, self.permanent = None, False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt as messages, with its priority and owner."""

    prompt: Prompt
    messages: Sequence[Message]
    priority: int
    scope: DrainScope
    attempt: int = 1


class Caller:
    """Asks until there is an answer."""

    def __init__(
        self,
        *,
        connection: Connection,
        limits: Limits,
        options: RequestOptions,
        policy: RetryPolicy,
        health: ModelHealth,
        on_call: OnModelCall,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._options = options
        self._policy = policy
        self._health = health
        self._on_call = on_call
        self._dropped: dict[str, frozenset[str]] = {}

    def request_hash(self, prompt: Prompt, messages: Sequence[Message]) -> str:
        """Return the hash of the request as it would be sent now, with the options that the server accepts."""
        dropped = self._dropped.get(prompt.reply_name, frozenset())
        return request_hash(messages, request(self._options, prompt, dropped))

    async def answer(self, question: Question) -> Answer:
        """Return the server's answer; a call that waits to be retried holds no slot."""

        async def once(attempt: int) -> Answer:
            answer = await self._with_accepted_options(replace(question, attempt=attempt))
            return replace(answer, usage=answer.usage.model_copy(update={"retries": attempt - 1}))

        def failed(error: CallFailedError) -> None:
            self._health.failed(error)
            question.scope.wait()

        return await tried(self._policy, once, failed)

    async def _with_accepted_options(self, question: Question) -> Answer:
        # By kind of reply: a server that refuses one schema may accept others.
        kind = question.prompt.reply_name
        dropped = self._dropped.get(kind, frozenset())
        while True:  # each turn drops one more of seven options, or ends
            parameters = request(self._options, question.prompt, dropped)
            try:
                answer = await self._call(question, parameters)
            except CallRefusedError as refused:
                name = option_to_drop(parameters, refused)
                if name is None:
                    raise
                question.scope.wait()
                dropped |= {name}
            else:
                self._dropped[kind] = dropped
                return answer

    async def _call(self, question: Question, parameters: dict[str, object]) -> Answer:
        estimated = estimate_tokens(*question.messages)
        body = request_body(question.messages, parameters)
        owner = question.prompt.owner
        async with self._limits.hold(priority=question.priority, tokens=estimated, owner=owner):
            question.scope.call()
            began_s = time.monotonic()
            try:
                answer = await self._connection.ask(body, question.messages)
            except CallFailedError:
                self._report("failed", began_s, question)
                raise
            except (CallRefusedError, PromptTooLongError):
                self._report("refused", began_s, question)
                self._health.answered()
                raise
        self._report("answered", began_s, question, answer.usage)
        self._health.answered()
        answer = replace(answer, request=sha256(body).hexdigest())
        self._limits.settle(estimated=estimated, used=answer.usage.tokens_in + answer.usage.tokens_out)
        return answer

    def _report(
        self,
        outcome: Literal["answered", "failed", "refused"],
        began_s: float,
        question: Question,
        usage: Usage = NOTHING,
    ) -> None:
        call = ModelCall(
            outcome=outcome,
            seconds=time.monotonic() - began_s,
            attempt=question.attempt,
            tokens_in=usage.tokens_in,
            cached_tokens=usage.cached_tokens,
            tokens_out=usage.tokens_out,
        )
        self._on_call(call)
