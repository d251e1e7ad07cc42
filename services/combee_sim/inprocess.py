"""The stand-in behind the model port, without HTTP: for unit tests and experiments."""

import asyncio
from typing import Any

from combee.adapters.ports import DrainingError
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply, request_hash
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge
from combee_sim.law.law import LAW, Law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.prefix_cache import PrefixCache
from combee_sim.roles.respond import MODEL, respond


def as_request(prompt: Prompt) -> dict[str, Any]:
    """Return the chat-completions request that an OpenAI client sends for ``prompt``."""
    schema = {"name": prompt.reply_name, "strict": True, "schema": dict(prompt.reply_schema)}
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ],
    }
    if prompt.reply_schema:
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


class SimulatedModel:
    """A `LanguageModel` that answers at once and never fails; everything it says is simulated."""

    def __init__(
        self,
        *,
        seed: int = 0,
        knowledge: Knowledge = NOTHING_KNOWN,
        cache: PrefixCache | None = None,
        law: Law = LAW,
        modes: Modes = NO_MODES,
    ) -> None:
        self.seed = seed
        self._knowledge = knowledge
        self._law = law
        self._modes = modes
        self._cache = cache
        self.calls = 0
        self._draining = False

    def request(self, prompt: Prompt) -> str:
        """Return the SHA-256 of the request that a prompt becomes."""
        return request_hash((), as_request(prompt))

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the stand-in's reply."""
        del priority
        if self._draining and not prompt.begun:
            raise DrainingError("the simulated model takes no further call")
        self.calls += 1
        request = as_request(prompt)
        answer = respond(request, self.seed, self._knowledge, law=self._law, modes=self._modes)
        usage = Usage(
            calls=1,
            tokens_in=answer.tokens_in,
            cached_tokens=min(self._cached(request), answer.tokens_in),
            tokens_out=answer.tokens_out,
        )
        return Reply(body=answer.reply, usage=usage, request=request_hash((), request))

    def _cached(self, request: dict[str, Any]) -> int:
        if self._cache is None:
            return 0
        now_s = asyncio.get_running_loop().time()
        tokens = self._cache.cached_tokens(request, now_s)
        self._cache.answered(request, now_s)
        return tokens

    def drain(self) -> None:
        """Refuse all further calls."""
        self._draining = True

    async def close(self) -> None:
        """Do nothing; no resource is open."""
