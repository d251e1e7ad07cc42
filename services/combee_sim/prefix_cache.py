"""A simulated prompt cache: how much of a request the server would have had in its prefix cache.

As OpenAI documents it (guide "Prompt caching"): a prefix counts from 1,024 tokens on, in steps of 128; the reply's
schema stands before the messages; what nobody asks for is forgotten after some minutes. Simulated, and on the careful
side: a prefix is there once the first call that has it is answered, so calls that run at the same time share nothing.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from combee_schemas.model import CHARS_PER_TOKEN

LEAST_TOKENS = 1_024
STEP_TOKENS = 128
IDLE_S = 300.0
"""OpenAI: 5 to 10 minutes without use."""
BLOCKS_KEPT = 65_536
"""About 8 million tokens; the least recently used go first."""


class PrefixCache:
    """Prefixes of answered requests, as chained hashes of their blocks, each with the time of its last use."""

    def __init__(self) -> None:
        self._used_s: OrderedDict[bytes, float] = OrderedDict()

    def cached_tokens(self, request: Mapping[str, Any], now_s: float) -> int:
        """Return how many tokens of a request, from its beginning, were there before ``now_s``."""
        blocks = list(takewhile(lambda block: self._is_known(block, now_s), _blocks(request)))
        tokens = len(blocks) * STEP_TOKENS
        return tokens if tokens >= LEAST_TOKENS else 0

    def answered(self, request: Mapping[str, Any], now_s: float) -> None:
        """Keep the prefixes of a request that got its answer at ``now_s``."""
        for block in _blocks(request):
            self._used_s[block] = now_s
            self._used_s.move_to_end(block)
        while len(self._used_s) > BLOCKS_KEPT:
            self._used_s.popitem(last=False)

    def _is_known(self, block: bytes, now_s: float) -> bool:
        used_s = self._used_s.get(block)
        return used_s is not None and used_s < now_s <= used_s + IDLE_S


def _blocks(request: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a hash per full block of a request's text; each stands for everything up to its block's end."""
    text = _text(request)
    size = STEP_TOKENS * CHARS_PER_TOKEN
    chained = blake2b(digest_size=16)
    for start in range(0, len(text) - size + 1, size):
        chained.update(text[start : start + size].encode(errors="replace"))
        yield chained.digest()


def _text(request: Mapping[str, Any]) -> str:
    shape = json.dumps(request.get("response_format"), sort_keys=True)
    return shape + json.dumps(request.get("messages"), ensure_ascii=False)
