"""Language models without a language model: answers by rule, every prompt on record."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from combee.adapters.ports import DrainingError
from combee.core.methods.checking import MAX_QUOTE_WORDS
from combee.scan.aggregate import CONTROL
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply, request_hash
from combee_sim.roles.fences import unfenced

Answer = Callable[[Prompt], Mapping[str, Any]]
"""Returns the reply's body, or raises what the port allows."""


def items(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the numbered items a prompt holds."""
    return [dict(part) for part in unfenced(prompt.user.splitlines()) if not isinstance(part, str)]


def is_combine(prompt: Prompt) -> bool:
    """Return whether a prompt asks to combine proposals."""
    return "\n<proposals " in prompt.user


def is_control(prompt: Prompt) -> bool:
    """Return whether a prompt only asks whether the model answers at all."""
    return CONTROL.reflection.key_insight in prompt.user


def echo(prompt: Prompt) -> Mapping[str, Any]:
    """Keep everything: one ADD for each item, resting on it; a trace's answer is its insight."""
    if prompt.reply_name == "reflection":
        return {"key_insight": f"learned: {items(prompt)[-1]['answer']}"}
    operations = [
        {
            "type": item.get("type", "ADD"),
            "section": item.get("section", "OTHERS"),
            "content": item.get("key_insight") or item.get("content"),
            "entry_ids": item.get("entry_ids", []),
            "sources": [item["n"]],
        }
        for item in items(prompt)
    ]
    return {"reasoning": "", "operations": operations}


def checked(prompt: Prompt) -> Mapping[str, Any]:
    """Answer a check call rightly: a statement says a lesson if it contains its words."""
    asked = items(prompt)
    statements = [(item["n"], item["statement"]) for item in asked if "statement" in item]
    covered = [
        {"lesson": item["n"], "statement": n, "quote": " ".join(text.split()[:MAX_QUOTE_WORDS])}
        for item in asked
        if "lesson" in item
        for n, text in statements
        if item["lesson"] in text
    ]
    return {"covered": covered, "lost": []}


def request_of(prompt: Prompt) -> str:
    """Return the hash of what a scripted model is asked."""
    return request_hash([{"system": prompt.system, "user": prompt.user}], {})


class ScriptedModel:
    """A model server: answers with ``answer``; replies wait while ``gate`` is clear."""

    def __init__(self, answer: Answer = echo) -> None:
        self.answer = answer
        self.answers_checks = True
        """Whether check calls are answered rightly, whatever ``answer`` says."""
        self.prompts: list[Prompt] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def calls(self) -> int:
        """How many calls were begun."""
        return len(self.prompts)

    @property
    def most_repeats(self) -> int:
        """How often the most repeated prompt about a batch was asked."""
        asked = Counter((p.system, p.user) for p in self.prompts if not is_control(p))
        return max(asked.values(), default=0)

    async def reply(self, prompt: Prompt) -> Reply:
        """Answer one prompt."""
        self.prompts.append(prompt)
        await asyncio.sleep(0)  # others run while a server would think
        await self.gate.wait()
        usage = Usage(calls=1, tokens_in=len(prompt.user))
        answer = checked if self.answers_checks and prompt.reply_name == "check" else self.answer
        return Reply(body=answer(prompt), usage=usage, request=request_of(prompt))


class LateModel(ScriptedModel):
    """Answers one group's call, the ``nth`` that is begun, only when ``late`` is set."""

    def __init__(self, nth: int = 1) -> None:
        super().__init__()
        self.late = asyncio.Event()
        self.cancelled = 0
        self._nth = nth
        self._groups: list[Prompt] = []

    @property
    def held(self) -> Prompt | None:
        """The late call's prompt, once it is begun."""
        return self._groups[self._nth - 1] if len(self._groups) >= self._nth else None

    async def reply(self, prompt: Prompt) -> Reply:
        if not is_combine(prompt) and prompt not in self._groups:
            self._groups.append(prompt)
        if prompt == self.held:
            try:
                await self.late.wait()
            except asyncio.CancelledError:
                self.prompts.append(prompt)
                self.cancelled += 1
                raise
        return await super().reply(prompt)


class ModelClient:
    """The ``LanguageModel`` port as one process has it."""

    def __init__(self, server: ScriptedModel) -> None:
        self._server = server
        self._draining = False

    def request(self, prompt: Prompt) -> str:
        return request_of(prompt)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:  # noqa: ARG002 - fixed by the port
        if self._draining and not prompt.begun:
            raise DrainingError("draining")
        return await self._server.reply(prompt)

    def drain(self) -> None:
        self._draining = True

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


def together(prompt: Prompt) -> Mapping[str, Any]:
    """Make one entry of all that a group teaches; nothing of it would be left if one of them lied."""
    if is_combine(prompt):
        return echo(prompt)
    said = items(prompt)
    content = " and ".join(sorted(item["key_insight"] for item in said))
    sources = [item["n"] for item in said]
    return {"operations": [{"type": "ADD", "section": "OTHERS", "content": content, "sources": sources}]}
