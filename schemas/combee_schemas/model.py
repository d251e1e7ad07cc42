"""Prompts for a language model, and its replies."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from combee_schemas.base import Usage

CHARS_PER_TOKEN = 4
"""Average characters per token: a rough measure that suffices to bound prompts without a tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt: the unchanging part first, then the data, then the shape of the reply."""

    system: str
    user: str
    reply_name: str
    reply_schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of the reply; empty means free text."""
    optional: frozenset[str] = frozenset()
    """Keys that a strict server must return (its schemas have no optional keys) and others may omit."""
    cache_key: str = ""
    """Cache key shared by prompts with the same beginning, so that a server routes them to one cache; empty: none."""
    owner: str = ""
    """Owner of the request, such as a playbook: owners take turns when the capacity is limited."""
    begun: bool = False
    """Whether the work that asks has paid for replies already: it goes on although the process is stopping."""
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with a free-text reply, so that the model is asked again; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's reply: parsed JSON (free text under ``text``) and its cost."""

    body: Mapping[str, Any]
    usage: Usage
    request: str = ""
    """SHA-256 of the request as it was sent; empty: unknown."""


def request_body(messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any]) -> bytes:
    """Return a whole request as canonical JSON bytes: the messages, and model, schema and options as parameters."""
    whole = {**parameters, "messages": [dict(message) for message in messages]}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def request_hash(messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a whole request."""
    return sha256(request_body(messages, parameters)).hexdigest()
