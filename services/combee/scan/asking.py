"""Asking a model about items in one call, or about each half in a call if they are too long."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from combee.adapters.ports import CutOffError, LanguageModel, PoisonError, PromptTooLongError
from combee.scan.asked import Call, Part, unanswered
from combee.scan.head_start import HeadStart
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply

Items = TypeVar("Items")

SPLIT = Usage(splits=1)


class Asking:
    """The calls about one batch's nodes."""

    def __init__(self, model: LanguageModel, head_start: HeadStart | None = None) -> None:
        self._model = model
        self._head_start = head_start
        self._begun = False
        """Whether a call was answered: if this worker stopped now, another one would have to pay it again."""

    async def ask(
        self, call: Call[Items], level: int, *, waits: bool = False
    ) -> list[Part[Items, Mapping[str, Any]]]:
        """Return the replies about all items of a call; ``waits``: whether it leaves a head start to another call."""
        try:
            reply = await self._reply(call, level, waits=waits)
        except PoisonError as error:
            is_too_long = isinstance(error, PromptTooLongError)
            less = call.halves() if is_too_long else call.fewer() if isinstance(error, CutOffError) else ()
            parts = [part for half in less for part in await self.ask(half, level, waits=waits)]
            if parts:
                return [replace(parts[0], usage=parts[0].usage + error.usage + SPLIT), *parts[1:]]
            problem = f"too long for the model however it is cut: {error}" if is_too_long else str(error)
            return [unanswered(call.items, problem, error.usage, is_too_long=is_too_long)]
        return [Part(items=call.items, answer=reply.body, usage=reply.usage, request=reply.request)]

    async def _reply(self, call: Call[Items], level: int, *, waits: bool) -> Reply:
        if waits and self._head_start:
            await self._head_start.wait(call.prompt)
        try:
            return await self._call(call.prompt, call.owner, level)
        except PromptTooLongError as error:
            refusal = error
        for prompt in call.shorter():
            try:
                return await self._call(prompt, call.owner, level)
            except PromptTooLongError as error:
                refusal = error
        raise refusal

    async def _call(self, prompt: Prompt, owner: str, level: int) -> Reply:
        reply = await self._model.ask(replace(prompt, owner=owner, begun=self._begun), priority=level)
        self._begun = True
        if self._head_start:
            self._head_start.answered(prompt)
        return reply
