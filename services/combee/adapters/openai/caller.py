"""From a question to an answer: limits, retries, and the request in the server's dialect."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import stamina

from combee.adapters.openai.answers import Answer, Message, estimate_tokens
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.dialect import Options, concession, request
from combee.adapters.openai.drain import Errand
from combee.adapters.openai.faults import CallFailedError, RefusedError
from combee.adapters.openai.limits import Limits
from combee.adapters.openai.patience import Health, Patience, Waiting
from combee.ports import ModelCall, OnModelCall, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.model import Prompt

NOTHING = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt as messages, and how it waits."""

    prompt: Prompt
    messages: Sequence[Message]
    priority: int
    errand: Errand
    attempt: int = 1


class Caller:
    """Asks until there is an answer."""

    def __init__(
        self,
        *,
        connection: Connection,
        limits: Limits,
        options: Options,
        patience: Patience,
        health: Health,
        on_call: OnModelCall,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._options = options
        self._patience = patience
        self._health = health
        self._on_call = on_call
        self._given_up: dict[str, frozenset[str]] = {}

    async def answer(self, question: Question) -> Answer:
        """Return the server's answer; a call that waits to be retried holds no slot."""
        waiting = Waiting(self._patience)
        async for attempt in stamina.retry_context(
            on=waiting,
            attempts=None,
            timeout=None,
            wait_initial=self._patience.first_wait_s,
            wait_jitter=self._patience.first_wait_s,
            wait_max=self._patience.max_wait_s,
        ):
            with attempt:
                try:
                    answer = await self._in_its_dialect(replace(question, attempt=attempt.num))
                except CallFailedError as failed:
                    waiting.failed_at(time.monotonic())
                    self._health.failed(failed)
                    question.errand.wait()
                    raise
                return replace(answer, usage=answer.usage.model_copy(update={"retries": attempt.num - 1}))
        raise AssertionError("stamina ends with a result or an error")

    async def _in_its_dialect(self, question: Question) -> Answer:
        # By kind of reply: one schema a server dislikes says nothing about the others.
        kind = question.prompt.reply_name
        given_up = self._given_up.get(kind, frozenset())
        while True:  # each turn gives up one more of six things, or ends
            parameters = request(self._options, question.prompt, given_up)
            try:
                answer = await self._call(question, parameters)
            except RefusedError as refused:
                one = concession(parameters, refused)
                if one is None:
                    raise
                question.errand.wait()
                given_up |= {one}
            else:
                self._given_up[kind] = given_up
                return answer

    async def _call(self, question: Question, parameters: dict[str, object]) -> Answer:
        estimated = estimate_tokens(*question.messages)
        async with self._limits.hold(priority=question.priority, tokens=estimated):
            question.errand.call()
            began_s = time.monotonic()
            try:
                answer = await self._connection.ask(parameters, question.messages)
            except CallFailedError:
                self._tell("failed", began_s, question)
                raise
            except (RefusedError, PromptTooLongError):
                self._tell("refused", began_s, question)
                self._health.answered()
                raise
        self._tell("answered", began_s, question, answer.usage)
        self._health.answered()
        self._limits.settle(estimated=estimated, used=answer.usage.tokens_in + answer.usage.tokens_out)
        return answer

    def _tell(
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
            tokens_out=usage.tokens_out,
        )
        self._on_call(call)
