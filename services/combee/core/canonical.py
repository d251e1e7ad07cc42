"""Canonical bytes: what must be equal when the same input is processed again, elsewhere or later."""

import json
from typing import Any

from combee_schemas.base import Message

LEFT_OUT_ENDINGS = (
    *("offset", "_ms", "seconds", "retries", "waiting", "spend", "cached_tokens"),
    *("hedges", "left_out", "automatic", "embeddings"),
)
"""Timings, what they decide (what waited, which day it is), who asked and places in the log; the rest follows from
the input."""
ADDED_LATER = frozenset(
    {"support", "unsupported_batches", "guessed", "clusters", "command_id", "consolidated_version", "branch"}
    | {"reused", "reused_tokens"}
)
"""Fields that there were not always: empty they are left out, so that older hashes still hold."""


def canonical(message: Message) -> bytes:
    """Return a message's content without timings and offsets, as bytes."""
    kept = _kept(message.model_dump(mode="json"))
    return json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if _counts(name, part)}
        return {name: _kept(part) if isinstance(part, (dict, list)) else part for name, part in kept.items()}
    if isinstance(value, list):
        return [_kept(part) if isinstance(part, (dict, list)) else part for part in value]
    return value


def _counts(name: str, value: Any) -> bool:
    return not (name.endswith(LEFT_OUT_ENDINGS) or (name in ADDED_LATER and not value))
