"""The head start of a batch's first group, so that a server with a prompt cache reads the shared beginning once.

The calls of level 0 begin with the same playbook and would start together, before the server has cached it. So the
first group's call starts at once, and the others wait as long as the server may take to read the part of the
beginning that this worker did not send lately.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress

from combee.adapters.ports import Clock
from combee.core.text.prompt import estimate_tokens
from combee_schemas.model import Prompt

READ_PER_S = 5_000
"""Tokens that a server reads in a second: a hosted model's order of magnitude."""
MARGIN = 1.1
MIN_TOKENS = 512
"""Minimum number of unread tokens for which waiting pays."""
MAX_S = 20.0
CACHED_S = 300.0
"""Minimum seconds for which servers keep an unused prefix."""
BEGINNINGS = 64
"""Maximum number of beginnings remembered: the last of each playbook."""
BLOCK = 512
"""Characters compared at once."""


def wait_s(unread_tokens: int, own_tokens: int) -> float:
    """Return the seconds in which a server reads a shared beginning and a call's own part; 0: do not wait."""
    return (
        min(MAX_S, MARGIN * (unread_tokens + own_tokens) / READ_PER_S) if unread_tokens >= MIN_TOKENS else 0.0
    )


class HeadStart:
    """The beginnings of prompts that a worker's server has read lately, by the prompts' cache key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._draining = asyncio.Event()

    async def wait(self, prompt: Prompt) -> None:
        """Return once another call may have read a prompt's beginning; a stopping worker does not wait."""
        seconds = wait_s(self._unread_tokens(prompt), estimate_tokens(prompt.user))
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._draining.wait()

    def answered(self, prompt: Prompt) -> None:
        """Note that the server has read a prompt; one without a cache key shares its beginning with no other."""
        if prompt.cache_key:
            self._read[prompt.cache_key] = prompt.system, self._clock.monotonic()
            self._read.move_to_end(prompt.cache_key)
        if len(self._read) > BEGINNINGS:
            self._read.popitem(last=False)

    def drain(self) -> None:
        """End every wait."""
        self._draining.set()

    def _unread_tokens(self, prompt: Prompt) -> int:
        known, at_s = self._read.get(prompt.cache_key, ("", 0.0))
        if not prompt.cache_key:
            return 0
        is_cached = self._clock.monotonic() - at_s <= CACHED_S
        shared = _shared_chars(known, prompt.system) if is_cached else 0
        return estimate_tokens(prompt.system[shared:])


def _shared_chars(one: str, other: str) -> int:
    """Return about how many characters two texts share at their beginning."""
    end = min(len(one), len(other))
    if one == other:
        return end
    return next((at for at in range(0, end, BLOCK) if one[at : at + BLOCK] != other[at : at + BLOCK]), end)
