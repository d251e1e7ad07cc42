"""A server with a prompt cache, in virtual time: a prefix is cached as soon as one call has read it."""

import asyncio
from collections import defaultdict
from dataclasses import replace

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.tails import Pace
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_sim.inprocess import as_request
from combee_sim.prefix_cache import PrefixCache


class CachingServer:
    """A model that takes time to read what is not cached, then to write; adds up what its calls took, by role."""

    def __init__(self, inner: LanguageModel, pace: Pace) -> None:
        self._inner = inner
        self._pace = pace
        self._cache = PrefixCache()
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        """By role: ``group``, ``combine``, ``check`` (with what is asked again), or a reply's name."""

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Answer late."""
        request, clock = as_request(prompt), asyncio.get_running_loop()
        cached = self._cache.cached_tokens(request, clock.time())
        reply = await self._inner.ask(prompt, priority=priority)
        usage = reply.usage.model_copy(update={"cached_tokens": min(cached, reply.usage.tokens_in)})
        new = Usage(tokens_in=usage.tokens_in - usage.cached_tokens)
        await asyncio.sleep(self._pace.seconds(new))
        self._cache.answered(request, clock.time())
        await asyncio.sleep(self._pace.seconds(Usage(tokens_out=usage.tokens_out)))
        self.usage[_role(prompt, priority)] += usage
        return replace(reply, usage=usage)

    def drain(self) -> None:
        self._inner.drain()

    async def close(self) -> None:
        """Leave the model open: it belongs to others."""


def _role(prompt: Prompt, priority: int) -> str:
    if prompt.reply_name != "operations":
        return prompt.reply_name
    return ("group", "combine", "again")[min(priority, 2)]
