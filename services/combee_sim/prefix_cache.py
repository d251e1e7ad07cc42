"""A simulated prompt cache: the part of a request that would have been in the server's prefix cache.

It follows OpenAI's guide "Prompt caching": a prefix counts from 1,024 tokens on, in steps of 128; the reply's schema
precedes the messages; unused prefixes are forgotten after some minutes. The simulation is conservative: a prefix is
cached once its first call is answered, so concurrent calls share nothing.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from combee_schemas.model import CHARS_PER_TOKEN

MIN_TOKENS = 1_024
STEP_TOKENS = 128
IDLE_S = 300.0
"""Seconds without use after which a prefix is forgotten; OpenAI states 5 to 10 minutes."""
BLOCKS_KEPT = 65_536
"""Maximum number of blocks, about 8 million tokens; the least recently used go first."""


class PrefixCache:
    """Prefixes of answered requests, as chained hashes of their blocks, each with the time of its last use."""

    def __init__(self) -> None:
        self._used_s: OrderedDict[bytes, float] = OrderedDict()

    def cached_tokens(self, request: Mapping[str, Any], now_s: float) -> int:
        """Return the number of a request's leading tokens that were cached before ``now_s``."""
        blocks = list(takewhile(lambda block: self._is_known(block, now_s), _blocks(request)))
        tokens = len(blocks) * STEP_TOKENS
        return tokens if tokens >= MIN_TOKENS else 0

    def answered(self, request: Mapping[str, Any], now_s: float) -> None:
        """Cache the prefixes of a request answered at ``now_s``."""
        for block in _blocks(request):
            self._used_s[block] = now_s
            self._used_s.move_to_end(block)
        while len(self._used_s) > BLOCKS_KEPT:
            self._used_s.popitem(last=False)

    def _is_known(self, block: bytes, now_s: float) -> bool:
        used_s = self._used_s.get(block)
        return used_s is not None and used_s < now_s <= used_s + IDLE_S


def _blocks(request: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a hash per full block of a request's text; each covers everything up to its block's end."""
    text = _text(request)
    size = STEP_TOKENS * CHARS_PER_TOKEN
    chained = blake2b(digest_size=16)
    for start in range(0, len(text) - size + 1, size):
        chained.update(text[start : start + size].encode(errors="replace"))
        yield chained.digest()


def _text(request: Mapping[str, Any]) -> str:
    shape = json.dumps(request.get("response_format"), sort_keys=True)
    return shape + json.dumps(request.get("messages"), ensure_ascii=False)
