"""Canonical bytes: the part of a message that must be equal when the same input is processed again."""

import json
from typing import Any

from combee_schemas.base import Message

LEFT_OUT_ENDINGS = (
    *("offset", "_ms", "seconds", "retries", "waiting", "spend", "cached_tokens"),
    *("hedges", "left_out", "automatic", "embeddings", "proven"),
)
"""Fields left out: timings and what depends on them (what waited, the current day), issuers, log positions, and the
results of proofs. All other fields follow from the input."""


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
