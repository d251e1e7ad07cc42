"""Canonical bytes: what must be equal when the same input is processed again, elsewhere or later."""

import json
from typing import Any

from combee_schemas.base import Message

LEFT_OUT_ENDINGS = (
    *("offset", "_ms", "seconds", "retries", "waiting", "spend", "cached_tokens"),
    *("hedges", "left_out", "automatic", "embeddings", "proven"),
)
"""Timings, what they decide (what waited, which day it is), who asked, places in the log and what secrets prove; the
rest follows from the input."""


def canonical(message: Message) -> bytes:
    """Return a message's content without timings and offsets, as bytes."""
    kept = _kept(message.model_dump(mode="json"))
    return json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(part) for name, part in value.items() if not name.endswith(LEFT_OUT_ENDINGS)}
    if isinstance(value, list):
        return [_kept(part) for part in value]
    return value
